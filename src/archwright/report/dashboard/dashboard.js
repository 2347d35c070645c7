// The dashboard: one stream of news; what it says is put into the page as text, never as code.
(function () {
  const at = (id) => document.getElementById(id);
  const address = (name) => "#run=" + encodeURIComponent(name);
  let chosen = ""; // name of the run that is shown
  let stream = null;
  let charts = "";
  let status = "";

  // The secret is in a cookie by now: it need not stay in the address bar.
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);

  function element(kind, text, className) {
    const made = document.createElement(kind);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  function connection(text, className) {
    at("connection").textContent = text;
    at("connection").className = className;
  }

  function connect() {
    if (stream) stream.close();
    stream = null;
    if (document.hidden) return; // a browser has six connections to a server; a hidden page needs none
    stream = new EventSource("/api/stream" + (chosen ? "?run=" + encodeURIComponent(chosen) : ""));
    stream.addEventListener("open", () => connection("live", "live"));
    stream.addEventListener("runs", (event) => showRuns(JSON.parse(event.data).runs));
    stream.addEventListener("run", (event) => showRun(JSON.parse(event.data)));
    stream.addEventListener("error", () => {
      const gone = stream && stream.readyState === EventSource.CLOSED;
      connection(gone ? "refused: open the address that archwright serve printed last" : "no connection, trying again", "lost");
    });
  }

  let every = []; // all runs, as the server told them last
  const marked = new Set(); // names of those to compare

  function showRuns(runs) {
    every = runs;
    at("none").hidden = runs.length > 0;
    at("choose").hidden = !runs.length;
    for (const name of marked) if (!runs.some((run) => run.name === name && run.status === "finished")) marked.delete(name);
    list();
    if (!chosen && runs.length) {
      const first = runs.find((run) => run.status === "running") || runs[0];
      location.replace(address(first.name));
    }
  }

  // The runs that are asked for, in the order that is asked for; what has no number comes last.
  function wanted() {
    const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const kind = at("show").value;
    const by = at("sort").value;
    const found = every.filter((run) => {
      const text = [run.name, run.title, run.result, run.note, run.status].join(" ").toLowerCase();
      return (!kind || run.status === kind) && words.every((word) => text.includes(word));
    });
    const number = (run) => (typeof run[by] === "number" ? run[by] : by === "accuracy" ? -Infinity : Infinity);
    if (by === "name") found.sort((a, b) => a.name.localeCompare(b.name));
    else if (by === "accuracy") found.sort((a, b) => number(b) - number(a));
    else if (by === "latency_ms") found.sort((a, b) => number(a) - number(b));
    return found;
  }

  function list() {
    const focused = document.activeElement && document.activeElement.dataset.run;
    const isBox = document.activeElement && document.activeElement.type === "checkbox";
    const shown = wanted();
    at("count").textContent = shown.length < every.length ? shown.length + " of " + every.length + " runs" : "";
    at("runs").replaceChildren(...shown.map(row));
    mark();
    if (focused !== undefined) {
      const kind = isBox ? "input" : "a";
      const again = [...at("runs").querySelectorAll(kind)].find((one) => one.dataset.run === focused);
      if (again) again.focus({ preventScroll: true });
    }
    at("compare").disabled = marked.size < 2;
    at("compare").textContent = marked.size ? "Compare " + marked.size + " runs" : "Compare: mark two or more";
  }

  function row(run) {
    const box = element("input");
    box.type = "checkbox";
    box.dataset.run = run.name;
    box.checked = marked.has(run.name);
    box.disabled = run.status !== "finished";
    box.setAttribute("aria-label", "Compare " + run.name);
    box.addEventListener("change", () => {
      if (box.checked) marked.add(run.name);
      else marked.delete(run.name);
      list();
    });
    const link = element("a");
    link.href = address(run.name);
    link.dataset.run = run.name;
    const top = element("span", undefined, "top");
    top.append(element("strong", run.title), element("span", run.status, "state " + run.status));
    link.append(top, element("span", run.result, "soft"), element("span", run.name, "soft"));
    if (run.note) link.append(element("span", run.note.split("\n")[0], "soft"));
    const item = element("li");
    item.append(box, link);
    return item;
  }

  function mark() {
    at("runs").querySelectorAll("a").forEach((link) => link.setAttribute("aria-current", link.dataset.run === chosen));
  }

  function showRun(run) {
    if (run.name !== chosen) return;
    at("chosen").hidden = false;
    if (status !== run.status) at("said").textContent = ""; // what was asked for has happened
    status = run.status;
    at("title").textContent = run.title;
    at("status").textContent = run.stopping ? "stopping" : run.status;
    at("status").className = "state " + run.status;
    at("name").textContent = run.name;
    at("created").textContent = run.created || "";
    at("result").textContent = run.result || "";
    at("stop").disabled = !run.can_stop || run.stopping;
    at("resume").disabled = !run.can_resume;
    at("resume").dataset.imports = (run.imports || []).join(", ");
    at("delete").disabled = !run.can_delete;
    showNote(run.note || "");
    at("failure").textContent = run.failure || "";
    at("failure").hidden = !run.failure;
    const base = "/runs/" + encodeURIComponent(run.name) + "/";
    at("report").href = base + (run.report || "report.html");
    at("log-file").href = base + "log.txt";
    at("bars").replaceChildren(...(run.bars || []).flatMap(bar));
    at("stages").replaceChildren(...(run.stages || []).map(stage));
    showCharts(run.charts || "");
    showLog(run.log || []);
  }

  let note = ""; // as the server told it last

  function showNote(text) {
    if (at("note").value === note && at("note").value !== text) at("note").value = text; // nobody is writing
    note = text;
    at("note-card").querySelector("summary").textContent = text ? "Note: " + text.split("\n")[0].slice(0, 80) : "Note";
  }

  function bar(one) {
    const label = element("span", one.title + ": " + one.text, "soft");
    const progress = element("progress");
    progress.max = 1;
    progress.value = one.share;
    progress.setAttribute("aria-label", one.title);
    return [label, progress];
  }

  function stage(one) {
    const item = element("li", one.title, one.state === "at work" ? "now" : one.state);
    item.append(element("span", [one.state, one.time].filter(Boolean).join(", ")));
    return item;
  }

  // Drawn by the same code as the report, which escapes what it is told; the page's policy runs no script in it.
  function showCharts(text) {
    if (text === charts || at("charts").contains(document.activeElement)) return;
    charts = text;
    const parsed = new DOMParser().parseFromString(text, "text/html");
    at("charts").replaceChildren(...parsed.body.childNodes);
  }

  function showLog(lines) {
    const log = at("log");
    at("log-card").hidden = !lines.length;
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
    const text = lines.join("\n");
    if (log.textContent !== text) log.textContent = text;
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  async function ask(what, query = "", body = undefined) {
    if (at(what).tagName === "BUTTON") at(what).disabled = true;
    try {
      const options = { method: "POST", body };
      const answer = await fetch("/api/runs/" + encodeURIComponent(chosen) + "/" + what + query, options);
      const found = await answer.json();
      at("said").textContent = found.said || found.error; // until the run says so itself
    } catch {
      at("said").textContent = "The server does not answer.";
    }
    connect();
  }

  at("choose").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["search", "show", "sort"]) at(id).addEventListener("input", list);
  at("compare").addEventListener("click", () => {
    open("/compare?" + [...marked].map((name) => "run=" + encodeURIComponent(name)).join("&"), "_blank", "noopener");
  });
  at("keep-note").addEventListener("click", () => ask("note", "", at("note").value));
  at("delete").addEventListener("click", async () => {
    if (!confirm("Remove " + chosen + " with all that is in its folder?")) return;
    await ask("delete");
    chosen = "";
    at("chosen").hidden = true;
    at("charts").replaceChildren();
    at("log-card").hidden = true;
    history.replaceState(null, "", location.pathname);
    connect();
  });
  at("stop").addEventListener("click", () => ask("stop"));
  at("resume").addEventListener("click", () => {
    const imports = at("resume").dataset.imports;
    if (!imports) ask("resume");
    else if (confirm("This run executes " + imports + ". Resume it only if you trust it.")) ask("resume", "?allow_import=true");
  });

  function choose() {
    const found = /^#run=(.+)$/.exec(location.hash); // other parts of the page have addresses, too
    if (!found || decodeURIComponent(found[1]) === chosen) return;
    chosen = decodeURIComponent(found[1]);
    charts = "";
    note = at("note").value = "";
    at("charts").replaceChildren();
    at("said").textContent = "";
    mark();
    connect();
  }

  addEventListener("hashchange", choose);
  document.addEventListener("visibilitychange", connect);
  choose();
  if (!stream) connect();
})();
