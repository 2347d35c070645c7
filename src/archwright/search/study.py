"""Ask and tell: a method proposes, the caller evaluates however and wherever it likes.

    study = Study("evolution", space="nasbench201", run="my-study")
    architecture = study.ask()
    study.tell(architecture, score)

A study is a run: every question and every answer is in its folder before the call returns, and opening the folder again
goes on with the same proposals, the unanswered ones first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from math import inf, isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from archwright.errors import InputError, RunError
from archwright.runs.files import JsonLines
from archwright.runs.progress import Progress
from archwright.runs.run import Run, new_folder, runs_root
from archwright.runs.stop import Stop
from archwright.search.asked import asked_for
from archwright.search.configuration import ASK_AND_TELL
from archwright.search.context import Context
from archwright.search.engine import compute_device
from archwright.search.evaluator import Evaluated
from archwright.search.proposals import ProposalSearch
from archwright.search.registry import methods
from archwright.spaces.base import Architecture, Space


class Study:
    """A propose-evaluate method whose evaluations are the caller's.

    Args:
        method: name of a method that proposes architectures: random, evolution, hnas, or one of yours.
        space: name, text or object.
        run: folder; a new one in the runs root by default. A folder that holds this very study is continued.
        options: of the method, and settings such as ``seed`` and ``limits``.

    Example:
        >>> study = Study("random", space='choices:{"x": [0, 1, 2]}')  # doctest: +SKIP
        >>> for _ in range(3):  # doctest: +SKIP
        ...     architecture = study.ask()
        ...     study.tell(architecture, -architecture["x"])
        >>> str(study.best.architecture)  # doctest: +SKIP
        '{"x": 0}'
    """

    def __init__(
        self, method: str, space: str | Space[Any] | None = None, *, run: Path | str | None = None, **options: Any
    ) -> None:
        chosen = methods.get(method)
        if not issubclass(chosen, ProposalSearch):
            raise InputError("a method that proposes architectures (random, evolution, hnas)", repr(method))
        if chosen.needs_objectives:
            raise InputError("a method with one score in a study", repr(method), "Give search() your function.")
        settings = {**options, "space": space or chosen.default_space, "evaluate": ASK_AND_TELL}
        configuration = asked_for(method, settings, "settings of a study")
        device = compute_device(configuration)
        context = Context(configuration, Run(Path(run or runs_root() / "new"), {}), device, Stop(), Progress())
        self.method: ProposalSearch = chosen(context)
        self.method.check()
        folder = Path(run) if run is not None else new_folder("study", method, context.task.space.name)
        kept = configuration.model_dump(mode="json")
        known = (folder / "run.json").is_file()
        context.run = Run.open(folder) if known else Run.create(folder, kept, device.describe())
        context.task.home = folder
        if known:
            _check_same(context.run, kept)
        self._held = ExitStack()
        self._held.enter_context(context.run.locked())
        self._log = JsonLines(folder / "items" / "study.jsonl")
        self.history: list[Evaluated] = []
        """What was told, in that order; minus infinity for what failed."""
        self._waiting = Counter[Architecture]()
        self._asked = 0
        try:
            self._again = deque(self._replay())
        except BaseException:
            self.close()
            raise

    @property
    def folder(self) -> Path:
        """The folder of its run."""
        return self.method.context.run.folder

    def _replay(self) -> list[Architecture]:
        """Take in what was asked and told, and give the unanswered questions in their order.

        A method that remembers proposes again, from the same past.
        """
        asked = list[Architecture]()
        parse = lru_cache(maxsize=None)(self.method.context.task.space.parse)
        for number, record in enumerate(self._log, 1):
            architecture, score = _checked(record, parse, f"line {number} of {self._log.path}")
            if score is not None:
                if not self._waiting[architecture]:
                    raise RunError(f"expected an answer to a question in line {number} of {self._log.path}, got none.")
                self._learn(architecture, score)
                continue
            if self.method.remembers:
                self.method.propose(self.history, self._asked)
            self._waiting[architecture] += 1
            self._asked += 1
            asked.append(architecture)
        return _last_ones(asked, self._waiting)

    def _learn(self, architecture: Architecture, score: float) -> None:
        self._waiting[architecture] -= 1
        if not self._waiting[architecture]:
            del self._waiting[architecture]
        self.history.append(Evaluated(architecture, score))

    def ask(self) -> Architecture:
        """The next architecture to evaluate; what was asked before the study was opened again comes first."""
        while self._again:
            architecture = self._again.popleft()
            if architecture in self._waiting:
                return architecture
        architecture = self.method.propose(self.history, self._asked)
        self._log.append({"architecture": str(architecture)})
        self._waiting[architecture] += 1
        self._asked += 1
        return architecture

    def tell(self, architecture: Architecture, score: float | None, why: str = "") -> None:
        """Say how good an architecture that was asked is; higher is better, None or NaN means that it failed.

        Args:
            architecture: from :meth:`ask`; several may be out at once, and come back in any order.
            score: what you measured.
            why: the reason of a failure, kept in the folder.
        """
        if architecture not in self._waiting:
            raise InputError("an architecture that was asked and not yet told", str(architecture))
        try:
            value = None if score is None or not isfinite(float(score)) else float(score)
        except (TypeError, ValueError) as error:
            raise InputError("a number as score, or None for a failure", repr(score)) from error
        self._log.append({"architecture": str(architecture), "score": value, "why": why})
        self._learn(architecture, -inf if value is None else value)

    @property
    def best(self) -> Evaluated:
        """The best that was told so far."""
        if not any(one.accuracy > -inf for one in self.history):
            raise InputError("a study that was told a score", "none so far")
        return max(self.history, key=lambda one: one.accuracy)

    def close(self) -> None:
        """Let go of the folder, so that it can be opened elsewhere; the end of the process does the same."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _last_ones(asked: Sequence[Architecture], counts: Mapping[Architecture, int]) -> list[Architecture]:
    """Of equal ones among ``asked`` the last, as many as ``counts`` says; in the order given."""
    left, found = Counter(counts), deque[Architecture]()
    for one in reversed(asked):
        if left[one] > 0:
            left[one] -= 1
            found.appendleft(one)
    return list(found)


def _checked(
    record: dict[str, Any], parse: Callable[[str], Architecture], where: str
) -> tuple[Architecture, float | None]:
    """The architecture of a record and, of an answer, its score; minus infinity where that is that it failed."""
    text, score = record.get("architecture"), record.get("score", 0)
    if not isinstance(text, str) or isinstance(score, bool) or not isinstance(score, int | float | None):
        raise RunError(f"expected a question or an answer of a study in {where}, got another record.")
    try:
        architecture = parse(text)
    except InputError as error:
        raise RunError(f"expected an architecture of the study in {where}, got another: {error}") from error
    if "score" not in record:
        return architecture, None
    return architecture, -inf if score is None else float(score)


def _check_same(run: Run, asked: dict[str, Any]) -> None:
    """Refuse to go on with another study than the folder holds."""
    different = [name for name, value in asked.items() if run.configuration.get(name) != value]
    if different:
        found = ", ".join(f"{name} {run.configuration.get(name)}" for name in different)
        raise InputError(
            f"the study that {run.folder} holds ({found})", ", ".join(f"{n} {asked[n]}" for n in different)
        )
