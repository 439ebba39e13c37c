"""News of a watch, as its client reads them: which changes they mean, and what waits for the program, bounded.

In:    the payloads of news, in order; what the program takes.
Out:   changes, each once; "anew" where some were lost, and then everything that matches.
State: what the watch was told (watching.py), a snapshot of which parts are missing, changes that were not taken.
Not here: the sender (watchers.py), keeping the watch at a broker (live/resources.py, sim/resourcing/party.py).

News are numbered from 1 when the watch begins at a broker. One that is missing or cannot be read costs no more than a
snapshot: until it is there, nothing is reported. A program that does not read loses changes, not memory: what waits is
forgotten, and when it reads again it gets "anew", and the resources that match by then as "appeared".
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
from msgspec import Meta

from heliograph.discovery.resources.watching import ANEW, APPEARED, ResourceChange, WatchState
from heliograph.errors import ProtocolError, Reason
from heliograph.wire.bodies import Body

CHANGES_BYTES_MAX = 16 << 20  # of changes that the program has not taken; one for each known resource always fits
CHANGE_BYTES = 256  # memory of a change beside its values
Count = Annotated[int, Meta(ge=0, le=(1 << 62) - 1)]


class ToldResource(TypedDict):
    """A resource in a snapshot."""

    id: str
    name: str
    host: str
    epoch: Count
    incarnation: Count
    number: Count
    values: dict[str, Any] | None
    age_ms: NotRequired[float]


class ToldState(ToldResource):
    """A resource that changed."""

    fits: bool
    gone: bool


class WatchNews(Body, frozen=True):
    """One piece of news."""

    number: Count
    anew: bool = False  # news were lost: a snapshot follows
    states: tuple[ToldState, ...] = ()
    emptied: tuple[str, Count] | None = None  # a host, and its incarnation
    snapshot: list[ToldResource] | None = None
    part: Count = 0  # of the snapshot
    more: bool = False  # parts follow; the last one names the hosts
    hosts: dict[str, tuple[Count, Count]] | None = None
    missing: tuple[str, ...] = ()


@cache
def _decoder() -> msgspec.json.Decoder[WatchNews]:
    return msgspec.json.Decoder(WatchNews)


def decode_news(data: bytes) -> WatchNews:
    """JSON as news; ProtocolError if it is invalid."""
    try:
        return _decoder().decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None


class WatchReader:
    """Reads the news of one watch."""

    def __init__(self, state: WatchState) -> None:
        self.state = state
        self.unreadable = 0  # news that were dropped
        self.lost = 0  # changes that the program did not take in time
        self.is_synced = False  # the first snapshot is complete
        self.is_stale = False  # something was missed, and the next snapshot is not complete
        self._heard = 0  # the number of the last news
        self._parts: list[ToldResource] = []
        self._next_part = 0
        self._changes: deque[tuple[ResourceChange, int]] = deque()  # with their bytes
        self._bytes = 0
        self._has_lost = False  # the program gets everything anew

    def begin(self) -> None:
        """The watch begins at a broker: a snapshot will come."""
        self._heard = 0
        self._parts, self._next_part = [], 0

    def hear(self, payload: bytes) -> None:
        """News. What cannot be read is dropped and counted."""
        try:
            news = decode_news(payload)
        except ProtocolError:
            self.unreadable += 1
            return
        if news.anew or news.number != self._heard + 1:
            self._miss()
        self._heard = news.number
        changes = [change for state in news.states for change in self.state.state(state)]
        if news.emptied is not None:
            changes += self.state.emptied(*news.emptied)
        if news.snapshot is not None:
            changes += self._hear_snapshot(news, news.snapshot)
        self._add(changes, len(payload))

    def check(self, number: int) -> None:
        """The broker says that it has told so many; it said so behind the last."""
        if number > self._heard:
            self._miss()

    def _miss(self) -> None:
        self.is_stale = self._has_lost = True
        self._parts, self._next_part = [], 0

    def _hear_snapshot(self, news: WatchNews, resources: list[ToldResource]) -> list[ResourceChange]:
        if not news.part:
            self._parts = []
        elif news.part != self._next_part:  # its beginning is missing
            self._miss()
            return []
        self._parts += resources
        self._next_part = news.part + 1
        if news.more:
            return []
        parts, self._parts = self._parts, []
        self.is_stale, self.is_synced = False, True
        return self.state.snapshot(parts, news.hosts or {}, news.missing)

    # -- the program --------------------------------------------------------------------------------------------

    def _add(self, changes: list[ResourceChange], size: int) -> None:
        if self._has_lost or not changes:
            return  # it gets everything anew
        each = CHANGE_BYTES + size // len(changes)
        self._changes.extend((change, each) for change in changes)
        self._bytes += each * len(changes)
        if self._bytes > CHANGES_BYTES_MAX and len(self._changes) > len(self.state.resources):
            self.lost += len(self._changes)
            self._changes.clear()
            self._bytes = 0
            self._has_lost = True

    def take(self) -> ResourceChange | None:
        """The oldest change that was not taken; None if there is none."""
        if not self._changes and self._has_lost and not self.is_stale:
            self._restate()
        if not self._changes:
            return None
        change, size = self._changes.popleft()
        self._bytes -= size
        return change

    def _restate(self) -> None:
        """Report that changes were lost, and everything that matches now."""
        self._has_lost = False
        self._changes.append((ResourceChange(ANEW, "", "", "", None), 0))
        self._changes.extend(
            (ResourceChange(APPEARED, id, known.name, known.host, known.values), 0)
            for id, known in self.state.resources.items()
            if known.fits
        )
