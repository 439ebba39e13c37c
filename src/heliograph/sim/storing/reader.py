"""A minimal durable subscriber.

In:    a name and a filter.
Out:   what it received, exactly once, in the notebook; credit and acknowledgements.
State: its position per store; everything that must survive a crash is in the notebook.
Not here: its link (store_user.py).
"""

from __future__ import annotations

from typing import Any

from heliograph.broker.hot import frames_of
from heliograph.machine import Address, Instant
from heliograph.sim.storing.notebook import Notebook
from heliograph.sim.storing.store_user import NS_PER_MS, StoreUser
from heliograph.wire import stores as wire
from heliograph.wire.frames import SCAN, Frame
from heliograph.wire.name_proofs import proof_of
from heliograph.wire.stores import Notice, StoredFlag

FIND_NS = 3_000 * NS_PER_MS


class _Place:
    """A reading at one store."""

    def __init__(self, store: int, channel: int, expected: int | None) -> None:
        self.store = store
        self.channel = channel
        self.expected = expected
        self.is_open = False
        self.asked_at: Instant = -(1 << 62)

    def open(self, position: int) -> None:
        self.is_open = True
        if self.expected is None:
            self.expected = position

    def shut(self) -> None:
        self.is_open = False

    def advance(self, after: int) -> None:
        assert self.expected is not None
        self.expected = max(self.expected, after)

    def ask(self, now: Instant) -> None:
        self.asked_at = now


class DurableReader(StoreUser):
    """Reads everything that matches, once."""

    def __init__(
        self,
        name: str,
        brokers: list[Address],
        seed: int,
        notebook: Notebook,
        *,
        pattern: str,
        window: int = 50,
        start: str = "first",
    ) -> None:
        super().__init__(name, brokers, seed)
        self._notebook = notebook
        self._pattern = pattern
        self._window = window
        self._start = start
        self._places: dict[int, _Place] = {}
        self._found_at: Instant = -(1 << 62)

    def welcomed(self, now: Instant) -> None:
        """Look for stores, and open readings again."""
        for place in self._places.values():
            place.shut()
        self._find(now)

    def _find(self, now: Instant) -> None:
        self._found_at = now
        self.ask(wire.FindStores(filter=self._pattern), self._found, now)

    def _found(self, answer: dict[str, Any] | None, now: Instant) -> None:
        for found in (answer or {}).get("stores", []):
            store = int(found["store"], 16)
            if store not in self._places:
                expected = self._notebook.place(self.name, store)
                self._places[store] = _Place(store, len(self._places) + 1, expected)
        for place in self._places.values():
            if not place.is_open:
                self._open(place, now)

    def _open(self, place: _Place, now: Instant) -> None:
        request = wire.OpenChannel(
            f"{place.store:016x}",
            place.channel,
            self.name,
            self._pattern,
            start=self._start if place.expected is None else "",
            position=place.expected,
            window=self._window,
            proof=self._proof(place, self.name),
            owner=self._proof(place),
        )

        def answered(answer: dict[str, Any] | None, now: Instant) -> None:
            if answer is not None and self.link is not None:
                place.open(answer["position"])

        self.ask(request, answered, now)

    def _proof(self, place: _Place, name: str = "") -> str:
        return proof_of(self.secret, f"{place.store:016x}", name)

    def heard(self, frame: Frame, now: Instant) -> None:
        """Handle publications, or a notice about a reading."""
        place = self._places.get(frame.origin)
        if place is None or not place.is_open:
            return
        if frame.flags & StoredFlag.NOTICE:
            self._noticed(place, wire.decode(Notice, frame.payload), now)
        elif not frame.flags:
            self._take(place, frame, now)

    def _noticed(self, place: _Place, notice: Notice, now: Instant) -> None:
        assert place.expected is not None
        if notice.gap is not None:
            first, end = notice.gap
            if first <= place.expected < end:
                self._notebook.miss(self.name, place.store, place.expected, end)
                place.advance(end)
        elif notice.code:
            place.shut()

    def _take(self, place: _Place, frame: Frame, now: Instant) -> None:
        channel, before, after, offsets = wire.span_of(frame)
        expected = place.expected
        assert expected is not None
        if channel != place.channel or after <= expected:
            return
        if before > expected:
            if now - place.asked_at > 300 * NS_PER_MS:
                place.ask(now)
                self._credit(place, True, now)
            return
        records = []
        start = 0
        for end, offset in zip(frames_of(frame.payload, 0), offsets, strict=True):
            _, _, origin, sequence, _ = SCAN.unpack_from(frame.payload, start)
            start = end
            if before + offset >= expected:
                records.append((place.store, before + offset, origin, sequence))
        self._notebook.take(self.name, place.store, records, after)
        place.advance(after)
        self._credit(place, False, now)

    def _credit(self, place: _Place, again: bool, now: Instant) -> None:
        assert place.expected is not None
        request = wire.GiveCredit(f"{place.store:016x}", place.channel, place.expected, self._window, again)
        self.ask(request, lambda _, now: None, now)

    def tick(self, now: Instant) -> None:
        """Acknowledge, repeat credit, and look for stores and readings that were lost."""
        if now - self._found_at > FIND_NS:
            self._find(now)
        for place in self._places.values():
            if place.is_open and place.expected is not None:
                self._credit(place, False, now)
                request = wire.AckPositions(
                    f"{place.store:016x}", self.name, place.expected, proof=self._proof(place, self.name)
                )
                self.ask(request, lambda answer, now, place=place: self._acked(place, answer), now)  # type: ignore[misc]

    def _acked(self, place: _Place, answer: dict[str, Any] | None) -> None:
        if answer is None:
            place.shut()  # the store does not know us, or is away: open it again
