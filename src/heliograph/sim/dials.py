"""Simulated dials: listening addresses, and links that come up one round trip later.

In:    dials of machines; addresses to listen at.
Out:   links, connected by the network; ``failed`` if no listener answers.
State: the listeners, the number of links made.
Not here: what happens on a link (network.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from heliograph.errors import Reason
from heliograph.machine import Address, Dial, Peer, Ticket
from heliograph.sim.distances import Distances
from heliograph.sim.loop import MICROSECOND, MILLISECOND, SECOND, Loop
from heliograph.sim.network import LinkHost, SimulatedNetwork
from heliograph.sim.seat import Seat

DIAL_NS_MAX = 5 * SECOND  # how long a driver waits for an answer to a dial

Dialled = tuple[LinkHost, Seat, Ticket, Dial]


@dataclass(frozen=True, slots=True)
class SimulatedListener:
    """An address that answers dials."""

    host: LinkHost
    machine: str
    name: str
    secure: bool


class SimulatedDials:
    """All listeners of a world, and the dials to them."""

    def __init__(self, loop: Loop, network: SimulatedNetwork, distances: Distances, draw: Callable[[], float]) -> None:
        self.links_made = 0
        self._listeners: dict[Address, SimulatedListener] = {}
        self._loop = loop
        self._network = network
        self._distances = distances
        self._draw = draw

    def listen(self, address: Address, listener: SimulatedListener) -> None:
        """Answer dials to this address while the host runs."""
        self._listeners[address] = listener

    def dial(self, host: LinkHost, seat: Seat, ticket: Ticket, dial: Dial, instant: int) -> None:
        """Try to open a link; the answer comes one round trip later."""
        delay_ns = self._distances.delay_ns
        there = delay_ns(host.name, dial.host) + delay_ns(dial.host, host.name)
        trip = there + 2 * (int(self._distances.jitter_ns * self._draw()) + MICROSECOND)
        self._loop.at(instant + trip, self._answer, (host, seat, ticket, dial))

    def _answer(self, dialled: Dialled, instant: int) -> None:
        host, seat, ticket, dial = dialled
        listener = self._listeners.get((dial.host, dial.port))
        if seat.gone:
            return
        if listener is None or not listener.host.up:
            host.fail(seat, ticket, Reason.DIAL_FAILED)
        elif self._network.is_blocked(host.name, listener.host.name):
            self._loop.at(instant + DIAL_NS_MAX, self._give_up, dialled)
        elif listener.secure != dial.secure:
            host.fail(seat, ticket, Reason.TLS_FAILED)
        elif (problem := _problem(host, listener, dial, instant)) is not None:
            host.fail(seat, ticket, problem)
        else:
            self._accept(dialled, listener, instant)

    def _give_up(self, dialled: Dialled, _instant: int) -> None:
        host, seat, ticket, _ = dialled
        if not seat.gone:
            host.fail(seat, ticket, Reason.TIME_OUT)

    def _accept(self, dialled: Dialled, listener: SimulatedListener, instant: int) -> None:
        host, seat, ticket, dial = dialled
        self.links_made += 1
        caller = replace(
            _peer(host, f"{host.name}:{50_000 + self.links_made % 10_000}", listener.secure), listener=listener.name
        )
        called = replace(_peer(listener.host, f"{dial.host}:{dial.port}", listener.secure), ticket=ticket)
        here = host.new_end(seat, called)
        there = listener.host.new_end(listener.host.seat(listener.machine), caller)
        self._network.connect(here, there, instant)


def _peer(host: LinkHost, address: str, secure: bool) -> Peer:
    """A host as the other end sees it: with TLS, it has shown its certificate."""
    if not secure:
        return Peer("tcp", address)
    return Peer("tls", address, identity=host.identity, serial=host.serial, expires_ms=host.expires_ms)


def _problem(host: LinkHost, listener: SimulatedListener, dial: Dial, instant: int) -> Reason | None:
    """Why a TLS handshake fails, as it would live: each side looks at the other's certificate and its own clock."""
    there = listener.host
    if not dial.secure:
        return None
    if _is_over(there, host.wall.wall_ns(instant)) or _is_over(host, there.wall.wall_ns(instant)):
        return Reason.CERTIFICATE_EXPIRED
    return None if there.identity is not None and there.identity.has(dial.role) else Reason.ROLE_MISSING


def _is_over(host: LinkHost, wall_ns: int) -> bool:
    return host.expires_ms is not None and wall_ns // MILLISECOND > host.expires_ms
