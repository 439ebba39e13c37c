"""Service requests: requests of a program to services of its broker, and their answers.

In:    Ask commands; lines that come into use; SERVICE frames.
Out:   SERVICE frames; settled requests.
State: requests that wait for a link; the open watches.
Not here: time-outs and which answer belongs to which request (client/requests.py), requests that other clients answer
          (client/inquiries.py), news of watches (client/watches.py).
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from heliograph.client.commands import Ask, EndWatch, Request
from heliograph.client.line import Line
from heliograph.client.lines import Lines
from heliograph.client.requests import Expected, OpenRequests
from heliograph.client.watches import ServiceWatches
from heliograph.errors import NotConnectedError, ProtocolError, Reason, RefusedError, UsageError
from heliograph.machine import Instant
from heliograph.model.topics import topic_fault
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, ServiceFlag, service
from heliograph.wire.limits import CONTROL_BYTES_MAX

_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class ServiceRequests:
    """Asks services of brokers for one session."""

    def __init__(self, requests: OpenRequests, lines: Lines, watches: ServiceWatches) -> None:
        self._requests = requests
        self._lines = lines
        self._watches = watches
        self._waiting: deque[Ask] = deque()  # requests that wait for a link

    def ask(self, command: Ask, now: Instant) -> None:
        """Ask a service; without a link the request waits. UsageError for what no service would accept."""
        _check(command)
        self._requests.open(command.request, now, lambda now: self._forget(command.request), more_ms=command.more_ms)
        self._ask(self._lines.current, command)

    def end_watch(self, command: EndWatch, now: Instant) -> None:
        """The program wants no more news of a watch, which need not have begun."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting.watch != command.watch)
        self._watches.end(command.watch)

    def ask_waiting(self, line: Line) -> None:
        """There is a link: send the requests that waited for one."""
        waiting, self._waiting = self._waiting, deque()
        for command in waiting:
            self._ask(line, command)

    def _ask(self, line: Line | None, command: Ask) -> None:
        if line is None or not line.is_ready or line.leaving:
            self._waiting.append(command)
            return
        number = self._requests.expect(line.id, Expected("ask", command.request, service=command.service))
        name = command.service.encode()
        if command.watch:
            self._watches.begin(line, name, command.watch)
        self._lines.request(line, service(name, _encode(command.body), number))

    def _forget(self, request: Request) -> None:
        self._waiting = deque(command for command in self._waiting if command.request != request)

    def answered(self, expected: Expected, frame: Frame, now: Instant) -> None:
        """A SERVICE frame came, which should be the expected answer."""
        if not frame.flags & ServiceFlag.ANSWER or frame.topic != expected.service.encode():
            raise ProtocolError(Reason.KIND_UNEXPECTED, "an answer without a request")
        if frame.flags & ServiceFlag.REFUSAL:
            refusal = bodies.decode(bodies.Refusal, frame.payload)
            error = RefusedError(bodies.reason_of(refusal.code), refusal.text)
            if expected.told is not None:
                expected.told(None, error, now)
            self._requests.settle(expected.request, error=error)
            return
        if expected.told is not None:
            expected.told(frame.payload, None, now)
            return
        try:
            answer = _decode_object(frame.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(Reason.BODY_MALFORMED, f"a service's answer: {error}") from None
        self._requests.settle(expected.request, answer)

    def lost(self, expected: Expected, now: Instant) -> None:
        """The link is gone: this answer will not come."""
        text = "the link was lost before the answer came; whether it was done is not known"
        error = NotConnectedError(Reason.CLOSED, text)
        if expected.told is not None:
            expected.told(None, error, now)
        self._requests.settle(expected.request, error=error)


def _check(command: Ask) -> None:
    fault = topic_fault(command.service.encode("utf-8", "surrogatepass"))
    if fault is not None:
        raise UsageError(f"{command.service!r} is not the name of a service: {fault}")
    try:
        size = len(_encode(command.body))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise UsageError(f"a request must be JSON values: {error}") from None
    if size > CONTROL_BYTES_MAX or not isinstance(command.body, dict):
        raise UsageError(f"a request is a JSON object of at most {CONTROL_BYTES_MAX} bytes")
