"""Outcomes: what a responder answered or refused, and why, published for monitoring.

In:    requests that were answered or refused.
Out:   one publication for each on ``System/Brokers/NAME/discovery``, a few at a time.
State: outcomes that are not published yet; nothing where the node has no monitor.
Not here: answering (response_sender.py), everything else that a broker reports (services/monitor.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from heliograph.services.broker_session import BrokerSession
from heliograph.services.monitor import topic_of

OUTCOMES_MAX = 256  # kept until they are published; more are counted
NS_PER_US = 1_000

_encode = msgspec.json.Encoder().encode


class Outcomes:
    """Told of every request whose address is proven."""

    def __init__(self, broker: str, is_wanted: bool, session: Callable[[], BrokerSession | None]) -> None:
        self._topic = topic_of(broker, "discovery")
        self._is_wanted = is_wanted
        self._session = session
        self._rows: list[dict[str, Any]] = []
        self._missed = 0

    def add(self, request: bytes, source: str, outcome: str, time_ns: int) -> None:
        """A request from this host was "answered", or the reason why not."""
        if not self._is_wanted:
            return
        if len(self._rows) >= OUTCOMES_MAX:
            self._missed += 1
            return
        row = {"time_us": time_ns // NS_PER_US, "request": request.hex(), "source": source, "outcome": outcome}
        self._rows.append(row)

    def publish(self) -> None:
        """Publish new outcomes."""
        session = self._session()
        if session is None or not self._rows:
            return
        for row in self._rows:
            session.publish(self._topic, _encode(row | {"missed": self._missed}))
        self._rows.clear()
