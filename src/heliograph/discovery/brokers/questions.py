"""Questions: what the administrator of a directory's machine asks the directory over a link.

In:    SERVICE frames named "admin": a JSON object with the report, the local token and, for a list, the first row.
Out:   SERVICE frames with the answer, or with the reason for a refusal.
State: the digest of the token.
Not here: the reports (directory.py), where the token is stored (live/runtime.py), asking (cli/bdn.py).

The questions have the form of a broker's admin service. But a directory has no sessions, so each question carries the
token.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.wire import bodies
from heliograph.wire.bodies import Body
from heliograph.wire.frames import Frame, ServiceFlag, service
from heliograph.wire.requests import RequestTypes

NAME = b"admin"
ROWS_MAX = 500  # in one answer: well within a frame


class Question(Body, frozen=True):
    """What is asked."""

    question: str = "overview"
    token: str = ""
    start: int = 0


_requests = RequestTypes(Question, malformed=Reason.QUESTION_UNKNOWN)


class Questions:
    """Answers questions that carry the token of this run."""

    def __init__(self, digest: bytes, report: Callable[[str], Any]) -> None:
        self._digest = digest
        self._report = report

    def answer(self, frame: Frame) -> bytes:
        """The frame to send back."""
        try:
            said = msgspec.json.encode(self._said(_requests.decode(frame.payload)))
            flags = int(ServiceFlag.ANSWER)
        except ProtocolError as error:
            said, flags = bodies.refusal(error.reason, error.detail), ServiceFlag.ANSWER | ServiceFlag.REFUSAL
        except UsageError as error:
            said = bodies.refusal(Reason.QUESTION_UNKNOWN, str(error)[:200])
            flags = ServiceFlag.ANSWER | ServiceFlag.REFUSAL
        return service(NAME, said, frame.sequence, flags=flags)

    def _said(self, asked: Question) -> Any:
        digest = sha256(asked.token.encode("utf-8", "surrogatepass")).digest()
        if not self._digest or not hmac.compare_digest(digest, self._digest):
            raise ProtocolError(Reason.ASK_DENIED, "only the user who runs this directory may ask, on its machine")
        report = self._report(asked.question)
        if not isinstance(report, list):
            return report
        start = max(0, asked.start)
        return {"start": start, "total": len(report), "rows": report[start : start + ROWS_MAX]}
