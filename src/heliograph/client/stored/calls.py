"""Store calls: the session's own requests to the service `stores` of its broker.

In:    requests (wire/stores.py) and what to call with the answer; answers; lost links.
Out:   SERVICE frames on the line in use.
State: none; the answers that are due are in client/requests.py.
Not here: requests of the program to services (client/service_requests.py).

A call is made once, on the line in use. If the link is lost the caller is told, and may repeat the call: every request
to a store can be repeated without harm.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.client.lines import Lines
from heliograph.client.requests import Expected, OpenRequests
from heliograph.errors import HeliographError, ProtocolError
from heliograph.machine import Instant
from heliograph.wire import stores
from heliograph.wire.bodies import Body
from heliograph.wire.frames import service

Failed = Callable[[HeliographError, Instant], None]


class StoreCalls:
    """Asks stores, through the service at the present broker."""

    def __init__(self, requests: OpenRequests, lines: Lines) -> None:
        self._requests = requests
        self._lines = lines

    @property
    def is_possible(self) -> bool:
        """True while there is a broker to ask."""
        line = self._lines.current
        return line is not None and line.is_ready and not line.leaving

    def ask(self, request: Body, kind: type[Body], answered: Callable[[Body, Instant], None], failed: Failed) -> bool:
        """Ask; ``answered`` or ``failed`` is called later. False, with no effect, if there is no broker."""
        line = self._lines.current
        if line is None or not self.is_possible:
            return False

        def told(payload: bytes | None, error: HeliographError | None, now: Instant) -> None:
            if payload is None:
                assert error is not None
                failed(error, now)
                return
            try:
                answer = stores.decode(kind, payload)
            except ProtocolError as malformed:
                failed(malformed, now)
                return
            answered(answer, now)

        number = self._requests.expect(line.id, Expected("call", service=stores.STORES.decode(), told=told))
        self._lines.request(line, service(stores.STORES, stores.encode(request), number))
        return True
