"""HTTP for a server that waits for nobody: a request that is not whole in time ends, however slowly it comes."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS_A_REQUEST = 10.0
"""From the opening of a connection, or the first byte of a further request, until that request is whole."""


class ImpatientProtocol(H11Protocol):
    """What uvicorn speaks, with a limit on the time that a request takes to come in."""

    _end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for a request."""
        super().connection_made(transport)
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Stop waiting where the request is whole; begin where another one begins."""
        super().data_received(data)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._await_request()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing to wait for any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        if self._end is None:
            self._end = self.loop.call_later(SECONDS_A_REQUEST, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
