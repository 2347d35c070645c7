"""Who may ask the dashboard: only a page of its own, in a browser that was given this start's address.

Four checks before any route sees a request, and headers that forbid the browser everything a page of ours does not do:

1. ``Host`` must be this server's own name, so that no other name can be pointed at this machine (DNS rebinding).
2. ``Origin`` and ``Sec-Fetch-Site`` must say that the request comes from a page of this server (or was typed in). What
   changes something must carry an Origin.
3. The secret of this start: in the address that was printed, afterwards in a cookie that is sent by no other site.
4. Only reading (GET) and asking (POST); no sockets.
"""

from __future__ import annotations

import secrets
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Of our own pages; a report brings a stricter one for itself."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
OPEN_IT = "Open the address that `archwright serve` printed."


class Guard:
    """An ASGI application around another one.

    Args:
        app: what is guarded.
        port: of the server, which is part of its names.
        token: the secret in the printed address.
    """

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self._app, self._token, self._session = app, token.encode(), secrets.token_urlsafe(32)
        names = ("127.0.0.1", "localhost")
        self._hosts = {f"{name}:{port}" for name in names} | (set(names) if port == 80 else set())  # 80 is left out
        self._cookie = f"archwright-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or say why not."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        invited = self._invited(scope)
        refusal = self._refusal(scope, invited)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**HEADERS, "Content-Security-Policy": POLICY}.items():
                    headers.setdefault(name, value)
                if invited and refusal is None:
                    cookie = f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"
                    headers.append("Set-Cookie", cookie)
            await send(message)

        inner: ASGIApp = self._app if refusal is None else PlainTextResponse(refusal[1], refusal[0])
        await inner(scope, receive, with_headers)

    def _invited(self, scope: Scope) -> bool:
        """Whether the request is for the page itself and has this start's secret in its address."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        return (
            scope["method"] == "GET"
            and scope["path"] == "/"
            and len(given) == 1
            and secrets.compare_digest(given[0].encode(), self._token)
        )

    def _refusal(self, scope: Scope, invited: bool) -> tuple[int, str] | None:
        """Status and reason, or None."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, f"This server has other names. {OPEN_IT}"
        if scope["method"] not in ("GET", "POST"):
            return 405, "Only GET and POST."
        origins = headers.getlist("origin")
        if any(origin.lower() != f"http://{hosts[0].lower()}" for origin in origins):
            return 403, "Requests of other sites are refused."
        if scope["method"] == "POST" and not origins:
            return 403, "Only the page of this server may ask for this."
        site = headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none") and not (invited and headers.get("sec-fetch-mode") == "navigate"):
            return 403, f"Requests of other sites are refused. {OPEN_IT}"
        if not invited and not self._known(headers):
            return 403, f"The address lacks the secret of this start. {OPEN_IT}"
        return None

    def _known(self, headers: Headers) -> bool:
        """Whether the browser has the cookie of this start; those of other servers on this machine come along."""
        pairs = [part.strip().partition("=") for part in "; ".join(headers.getlist("cookie")).split(";")]
        given = [value for name, _, value in pairs if name == self._cookie]
        return len(given) == 1 and secrets.compare_digest(given[0].encode(), self._session.encode())
