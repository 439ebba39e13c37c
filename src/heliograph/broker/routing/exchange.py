"""The exchange: how two neighbours come to know the same.

In:    neighbours whose link counts from now on, things that came back into reach; SYNC frames.
Out:   SYNC frames: what we have, what we want; MAP and INTEREST frames with what was wanted.
State: none.
Not here: what is learned and passed on meanwhile (network.py), how long things are kept (memory.py).
Paper: [grid] §1.2; N8, a healed partition merges.

A broker offers what is in reach, by owner and number; the other side asks for what it lacks. So what is out of reach
goes nowhere, with one exception: who offers something older than what is known here is sent the newer word, because
it may be about itself, from an earlier life with a later clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from heliograph.broker.links import Link
from heliograph.broker.routing.interests import snapshot_of
from heliograph.broker.routing.memory import Item
from heliograph.broker.routing.neighbours import Neighbour
from heliograph.machine import Instant
from heliograph.wire import network as wire
from heliograph.wire.frames import Frame, Kind
from heliograph.wire.network import SYNC_PER_BODY_MAX, Sync, What

if TYPE_CHECKING:
    from heliograph.broker.routing.network import Network

INNER: tuple[What, ...] = ("member", "narrow")  # what stays inside a cluster


class Exchange:
    """Offers, asks and answers."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def greet(self, neighbour: Neighbour) -> None:
        """The link counts from now on: offer everything that is in reach."""
        network = self._network
        self._offer(neighbour, [item for item in network.known() if network.in_reach(*item)])

    def offer(self, items: list[Item]) -> None:
        """These came back into reach: neighbours may have forgotten them, or never had them."""
        for neighbour in self._network.neighbours.values():
            self._offer(neighbour, items)

    def _offer(self, neighbour: Neighbour, items: Iterable[Item]) -> None:
        has = []
        for what, broker in items:
            age = self._network.age(what, broker)
            if age is not None and self._concerns(neighbour, what):
                has.append((what, broker, *age))
        for start in range(0, len(has), SYNC_PER_BODY_MAX):
            self._say(neighbour, Sync(has=has[start : start + SYNC_PER_BODY_MAX]))

    def ask(self, neighbour: Neighbour, items: list[Item]) -> None:
        """Ask for things in full."""
        if items:
            self._say(neighbour, Sync(wants=items))

    def receive(self, link: Link, frame: Frame, now: Instant) -> None:
        """What a neighbour has, or wants."""
        neighbour = link.neighbour
        assert neighbour is not None
        sync = wire.decode_sync(frame.payload)
        wants: list[Item] = []
        for what, broker, incarnation, number in sync.has[:SYNC_PER_BODY_MAX]:
            if not self._concerns(neighbour, what):
                continue
            theirs, ours = (incarnation, number), self._network.age(what, broker)
            if ours is None or theirs > ours:
                wants.append((what, broker))
            elif theirs < ours and not self._network.in_reach(what, broker):
                self.send(neighbour, what, broker)
        self.ask(neighbour, wants)
        for what, broker in sync.wants[:SYNC_PER_BODY_MAX]:
            if self._concerns(neighbour, what):
                self.send(neighbour, what, broker)

    def _concerns(self, neighbour: Neighbour, what: What) -> bool:
        return what not in INNER or neighbour.cluster == self._network.map.me.cluster

    def send(self, neighbour: Neighbour, what: What, broker: int) -> None:
        """Tell the newest word about it, if there is one."""
        network = self._network
        if what in ("member", "gateway"):
            records = network.map.members if what == "member" else network.map.gateways
            if broker in records:
                network.updates_told += 1
                network.put(neighbour, Kind.MAP, wire.encode(records[broker]))
            return
        wide = what == "wide"
        if broker == network.me:
            voice = network.speaker.voice if wide else network.voice
            if voice is not None:
                network.tell_interests(voice.snapshot(), neighbour)
            return
        age = network.interests.age(broker, wide)
        if age is not None:
            owner = network.interests.owners[(broker, wide)]
            network.tell_interests(snapshot_of(broker, wide, age, owner.filters, list(owner.groups)), neighbour)

    def _say(self, neighbour: Neighbour, sync: Sync) -> None:
        self._network.put(neighbour, Kind.SYNC, wire.encode(sync))
