"""Peering: how two brokers become neighbours, and how one notices that the other is gone.

In:    addresses to dial; LINK, LINKED and PROOF frames; PONGs; time.
Out:   neighbours that are up, suspected, relieved or down (told to routing.py); dials, retried; round trips, for the
       cost of a link (Neighbour.measure in ports.py).
State: dials under way, handshakes under way, heartbeats.
Not here: what neighbours tell each other (routing.py), clients' handshakes (broker/sessions.py).
Paper: [grid] §1.2, links and brokers that failed or are failure-suspected.

A broker proves itself by a certificate with the role broker, or by the network key: each side shows an
HMAC of what both said, so the key itself never travels. Only then are hop prefixes, maps and interests read from it
(N18). The broker that dials shows its HMAC first: otherwise every stranger who dials would get one, and could test
guesses of the key against it. The HMAC covers both names: somebody without the key whom we dial could otherwise have
our own listener, or another broker's, answer for a third name.

A link ends with the certificates that proved it. Before that, the broker that dialled it dials again, by itself or
because the other asks for it, and the new link takes the place of the old one (renewals.py).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from hmac import new as hmac
from typing import Any

from msgspec.structs import replace

from heliograph.broker.routing.config import LinkConfig, NetworkConfig
from heliograph.broker.routing.ports import END_TEXT_MAX, GONE, READY, LinkWriter, Neighbour, Port, describe_end
from heliograph.broker.routing.renewals import Renewals
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Dial, Instant, Outbox, Ticket, Timers
from heliograph.model.chance import Seed, delays_of, nonces_of
from heliograph.model.identity import Role, describe_network
from heliograph.notes import DialFailed, NeighbourRelieved, NeighbourSuspected
from heliograph.wire import bodies
from heliograph.wire.broker_bodies import MEMBERS_MAX, LinkUp, Proof, broker_id, decode_link_up, decode_proof, encode
from heliograph.wire.frames import VERSION, Frame, Kind, control
from heliograph.wire.limits import LINKS_PER_BROKER_MAX

NONCE_BYTES = 16
HANDSHAKE_MS = 2_000
RETRY_MS = 100
RETRY_MS_MAX = 5_000
LINKED, DIALLING = "linked", "dialling"  # states of an aim


class Aim:
    """An address that this broker keeps a link to."""

    __slots__ = ("broker", "config", "link", "reason", "refused", "retry_ms")

    def __init__(self, config: LinkConfig) -> None:
        self.config = config
        self.broker = 0  # the broker that answers there, once known
        self.link: Port | None = None
        self.refused: tuple[Reason, str] | None = None  # why the broker there last refused us
        self.retry_ms = RETRY_MS
        self.reason = ""  # why the last dial failed or the last link ended


class Greeting:
    """A handshake between brokers that is under way on a link."""

    __slots__ = ("aim", "asked_at", "link", "linked", "other", "took_ns")

    def __init__(self, link: bytes, aim: Aim | None, now: Instant) -> None:
        self.link = link  # the body of the LINK …
        self.linked = b""  # … and of the LINKED, as they were sent
        self.asked_at = now
        self.aim = aim
        self.other: LinkUp | None = None
        self.took_ns: int | None = None  # until the other answered; None: what comes next is the answer

    def asked(self, other: LinkUp, linked: bytes) -> None:
        """The broker that dialled us told its record; we answer with ours."""
        self.other, self.linked = other, linked

    def answered(self, other: LinkUp, linked: bytes, now: Instant) -> None:
        """The broker that we dialled told its record."""
        self.other, self.linked = other, linked
        self.took_ns = now - self.asked_at

    def proof(self, side: str, key: bytes) -> str:
        """What this side shows of the network key."""
        link, linked = (sha256(body).hexdigest() for body in (self.link, self.linked))
        return hmac(key, f"heliograph link {side} {link} {linked}".encode(), sha256).hexdigest()


class Peering:
    """Makes and watches links to other brokers.

    It has 32 methods because dials, handshakes, renewals and heartbeats of one link follow each other.
    """

    def __init__(
        self,
        config: NetworkConfig,
        myself: Callable[[], LinkUp],
        neighbours: dict[int, Neighbour],
        is_full: Callable[[LinkUp, Instant], bool],
        incarnation_max: Callable[[Instant], int],
        seed: Seed,
        links: LinkWriter,
        outbox: Outbox,
        timers: Timers,
        *,
        proven: Callable[[Port], None],
        up: Callable[[Neighbour, Instant], None],
        changed: Callable[[Neighbour, Instant], None],
        down: Callable[[Neighbour, Instant], None],
        goodbye: Callable[[Any, Frame, Instant], None],
        renewals: Renewals,
    ) -> None:
        self._config = config
        self._myself = myself  # our own record, with an empty nonce
        self._nonces = nonces_of(seed, "links")
        self._drawn = 0
        self._random = delays_of(seed)
        self._links = links
        self._outbox = outbox
        self._timers = timers
        self._aims: dict[tuple[str, int], Aim] = {}
        self._dials: dict[Ticket, Aim] = {}
        self._greetings: dict[Port, Greeting] = {}
        self._neighbours = neighbours  # routing's table of neighbours, maintained here
        self._is_full = is_full  # the cluster has no slot for that broker, or none for us
        self._incarnation_max = incarnation_max  # the highest that we believe
        self._proven = proven  # called when a broker has proven itself on a link
        self._up = up
        self._changed = changed  # called when a neighbour's cost changed, or it is suspected or relieved
        self._down = down
        self._goodbye = goodbye  # called when a neighbour ends its link
        self._renewals = renewals

    def start(self, now: Instant) -> None:
        """Dial the configured links."""
        for target in self._config.links:
            self.aim(target, now)

    def reload(self, config: NetworkConfig, now: Instant) -> None:
        """Dial links that are new in the settings, and end those that were removed. A new key applies to new links, new
        times from the next heartbeat on."""
        before, self._config = self._config, config
        for target in before.links:
            if target not in config.links:
                self.drop(target)
        for target in config.links:
            if target not in before.links:
                self.aim(target, now)

    # -- dialling -------------------------------------------------------------------------------------------------

    def aim(self, target: LinkConfig, now: Instant) -> None:
        """Keep a link to this address from now on."""
        key = (target.host, target.port)
        if key not in self._aims:
            self._aims[key] = Aim(target)
            self._dial(self._aims[key])

    def drop(self, target: LinkConfig) -> bool:
        """Stop keeping a link to this address; False if there was no such aim."""
        aim = self._aims.pop((target.host, target.port), None)
        if aim is None:
            return False
        self._timers.cancel(("aim", target.host, target.port))
        neighbour = self._neighbours.get(aim.broker)
        if neighbour is not None:
            self._links.hang_up(neighbour.link, Reason.GOODBYE, "this link was removed")
        elif aim.link is not None:
            self._links.hang_up(aim.link, Reason.GOODBYE, "this link was removed")
        return True

    def _dial(self, aim: Aim) -> None:
        config = aim.config
        ticket = self._outbox.dial(Dial(config.host, config.port, config.secure))
        self._dials[ticket] = aim

    def _dial_later(self, aim: Aim, reason: Reason, now: Instant, detail: str = "") -> None:
        key = (aim.config.host, aim.config.port)
        if key not in self._aims:
            return
        wait_ms = self._random.randint(aim.retry_ms // 2, aim.retry_ms)
        aim.retry_ms = min(2 * aim.retry_ms, RETRY_MS_MAX)
        self._outbox.note(DialFailed(f"{key[0]}:{key[1]}", reason, wait_ms, detail))
        self._timers.set(("aim", *key), now + wait_ms * NS_PER_MS, lambda now: self._try_again(aim, now))

    def _try_again(self, aim: Aim, now: Instant) -> None:
        if aim.broker in self._neighbours:  # it has dialled us in the meantime: one link is enough
            self._timers.set(
                ("aim", aim.config.host, aim.config.port),
                now + RETRY_MS_MAX * NS_PER_MS,
                lambda now: self._try_again(aim, now),
            )
            return
        self._dial(aim)

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> bool:
        """A dial failed; False if the ticket is not ours."""
        aim = self._dials.pop(ticket, None)
        if aim is None:
            return False
        if aim.link is not None:  # a link that was to be renewed is still there; another warning follows
            self._outbox.note(DialFailed(aim.config.address, reason, 0))
            return True
        aim.reason = reason.word
        self._dial_later(aim, reason, now)
        return True

    # -- handshake ------------------------------------------------------------------------------------------------

    def attach(self, link: Port, now: Instant) -> bool:
        """A link came up; False if it is not one of our dials."""
        aim = self._dials.pop(link.peer.ticket, None) if link.peer.ticket is not None else None
        if aim is None:
            return False
        if self._aims.get((aim.config.host, aim.config.port)) is not aim:  # dropped while the dial was under way
            self._links.hang_up(link, Reason.GOODBYE, "this link was removed")
            return True
        renews = aim.link is not None
        body = encode(replace(self._say(), renews=renews))
        self._greetings[link] = Greeting(body, aim, now)
        if aim.link is not None:
            self._renewals.prepare(link, aim.link)
        else:
            aim.link = link
        at = now + HANDSHAKE_MS * NS_PER_MS
        self._timers.set(("handshake", link.id), at, lambda now: self._too_slow(link))
        self._links.put(link, control(Kind.LINK, 0, body))
        return True

    def _too_slow(self, link: Port) -> None:
        if link.state not in (READY, GONE):
            self._links.hang_up(link, Reason.HANDSHAKE_TOO_SLOW, "the other broker did not answer in time")

    def receive_link(self, link: Port, frame: Frame, now: Instant) -> None:
        """The first frame of a broker that dialled us."""
        if link.state == READY or link in self._greetings:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "only the first frame is a LINK")
        other = decode_link_up(frame.payload)
        self._check(other, now)
        answer = encode(self._say())
        greeting = self._greetings[link] = Greeting(frame.payload, None, now)
        greeting.asked(other, answer)
        known = self._neighbours.get(other.broker)
        if other.renews and known is not None and not known.dialled:
            self._renewals.prepare(link, known.link)
        certified = _is_certified(link)
        if not certified and not self._config.key:
            raise ProtocolError(
                Reason.ROLE_MISSING, "a broker must show a certificate with the role broker, or a network key"
            )
        self._links.put(link, control(Kind.LINKED, 0, answer))
        if certified:
            self._rise(link, other, False, now)

    def receive_linked(self, link: Port, frame: Frame, now: Instant) -> None:
        """The answer of a broker that we dialled."""
        greeting = self._greetings.get(link)
        if greeting is None or greeting.aim is None or greeting.other is not None:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "LINKED answers a LINK")
        other = decode_link_up(frame.payload)
        greeting.answered(other, frame.payload, now)
        self._check(other, now)
        greeting.aim.broker = other.broker
        if _is_certified(link):
            self._rise(link, other, True, now)
        elif self._config.key:
            self._links.put(link, _frame_of(greeting.proof("dialler", self._config.key)))
        else:
            raise ProtocolError(Reason.CREDENTIAL_WRONG, "the other broker shows no certificate, and we have no key")

    def receive_goodbye(self, link: Port, frame: Frame, now: Instant) -> None:
        """The broker that we dialled refuses this link. The reason is reported once the link has ended."""
        goodbye = bodies.decode(bodies.Goodbye, frame.payload)
        reason = bodies.reason_of(goodbye.code)
        link.say_why(describe_end(reason.word, goodbye.text))
        greeting = self._greetings.get(link)
        if greeting is not None and greeting.aim is not None:
            greeting.aim.refused = (reason, f"the broker there says: {goodbye.text[:END_TEXT_MAX]}")
        self._links.hang_up(link, Reason.GOODBYE)

    def receive_proof(self, link: Port, frame: Frame, now: Instant) -> None:
        """The other broker's proof: first that of the dialling broker, then, as the answer, that of the other."""
        greeting = self._greetings.get(link)
        if greeting is None or greeting.other is None or link.state == READY:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "PROOF follows LINKED only, and no session")
        dialled, other = greeting.aim is not None, greeting.other
        wanted = greeting.proof("listener" if dialled else "dialler", self._config.key)
        if not self._config.key or not _is_equal(wanted, decode_proof(frame.payload).proof):
            raise ProtocolError(Reason.CREDENTIAL_WRONG, "the other broker does not have our network key")
        if not dialled:
            self._links.put(link, _frame_of(greeting.proof("listener", self._config.key)))
        self._rise(link, other, dialled, now)

    def _check(self, other: LinkUp, now: Instant) -> None:
        if VERSION not in other.versions:
            raise ProtocolError(Reason.VERSION_UNSUPPORTED, f"this broker speaks version {VERSION}")
        if other.broker != broker_id(other.name):
            raise ProtocolError(Reason.BODY_MALFORMED, "a broker's id follows from its name")
        self._check_network(other)
        if other.broker == self._myself().broker:
            raise ProtocolError(Reason.NAME_TAKEN, f"both brokers are called {other.name[:64]!r}")
        if other.incarnation > self._incarnation_max(now):
            raise ProtocolError(Reason.INCARNATION_AHEAD, f"the clock of {other.name[:64]} is years ahead of ours")
        if len(self._neighbours) >= LINKS_PER_BROKER_MAX and other.broker not in self._neighbours:
            raise ProtocolError(Reason.LINKS_OVER_LIMIT, f"this broker has {LINKS_PER_BROKER_MAX} neighbours")
        if self._is_full(other, now):  # checked before either side tells others about the link
            raise ProtocolError(Reason.CLUSTER_FULL, f"a cluster has at most {MEMBERS_MAX} brokers")

    def _check_network(self, other: LinkUp) -> None:
        """Check the network name. Both sides do, so that both logs say why there is no link."""
        ours, theirs = self._myself().network, other.network
        if ours == theirs:
            return
        raise ProtocolError(
            Reason.NETWORK_OTHER,
            f"{other.name[:64]} belongs to {describe_network(theirs)}, {self._myself().name[:64]} to "
            f"{describe_network(ours)}; to link them, set the same network.name at both",
        )

    def _rise(self, link: Port, other: LinkUp, dialled: bool, now: Instant) -> None:
        """Both sides are proven: from now on this is a link between brokers."""
        me = self._myself().broker
        known = self._neighbours.get(other.broker)
        is_renewed = known is not None and self._renewals.fits(link, known, other.incarnation)
        if known is not None and known.link is not link and not is_renewed:
            ours, theirs = (me, other.broker)
            new_dialler = ours if dialled else theirs
            old_dialler = ours if known.dialled else theirs
            if other.incarnation == known.incarnation and new_dialler > old_dialler and not known.suspected:
                self._links.hang_up(link, Reason.DUPLICATE, "these brokers have a link already")
                return
            self._links.hang_up(known.link, Reason.TAKEN_OVER, "a newer link between these brokers")
        greeting = self._greetings.pop(link)
        if greeting.aim is not None:
            greeting.aim.link = link
        self._timers.cancel(("handshake", link.id))
        self._proven(link)
        if known is not None and is_renewed:
            self._forget_beats(known.link)
            self._renewals.move(known, link, now)
            neighbour = known
        else:
            neighbour = Neighbour(link, other.broker, other.name, other.cluster, other.incarnation, dialled)
            took_ns = now - greeting.asked_at if greeting.took_ns is None else greeting.took_ns
            if took_ns > 0:  # the answer to our greeting gives a round-trip time before the first pong
                self._measure(neighbour, took_ns)
                neighbour.tell_cost()
            link.rise(neighbour)
            self._neighbours[other.broker] = neighbour
        self._beat(neighbour, now)
        self._watch(neighbour, now)
        if not is_renewed:
            self._up(neighbour, now)

    # -- renewal --------------------------------------------------------------------------------------------------

    def renew(self, link: Port, left_ms: int, now: Instant) -> None:
        """A certificate of this link ends soon: dial anew, or ask the broker that dialled it to do so. Without any time
        left, it asks us."""
        neighbour = link.neighbour
        if neighbour is None or neighbour.link is not link or link.state != READY:
            return
        aim = next((aim for aim in self._aims.values() if aim.link is link), None)
        if aim is not None:
            under_way = aim in self._dials.values() or any(each.aim is aim for each in self._greetings.values())
            if not under_way:
                self._dial(aim)
        elif left_ms:
            body = bodies.goodbye(Reason.CERTIFICATE_EXPIRED, "a certificate ends soon; dial again", left_ms)
            self._links.put(link, control(Kind.GOODBYE, 0, body))

    def receive_farewell(self, link: Port, frame: Frame, now: Instant) -> None:
        """GOODBYE of a neighbour: it asks for a renewed link, has moved to one, or ends this one."""
        if bodies.decode(bodies.Goodbye, frame.payload).grace_ms:
            self.renew(link, 0, now)
        elif not self._renewals.last_on(link, now):
            self._goodbye(link, frame, now)

    def _nonce(self) -> str:
        self._drawn += 1
        return sha256(self._nonces + self._drawn.to_bytes(8, "little")).digest()[:NONCE_BYTES].hex()

    def _say(self) -> LinkUp:
        return replace(self._myself(), nonce=self._nonce())

    # -- heartbeats -----------------------------------------------------------------------------------------------

    def _beat(self, neighbour: Neighbour, now: Instant) -> None:
        if neighbour.link.state != READY:
            return
        self._links.put(neighbour.link, control(Kind.PING, now))
        at = now + self._config.heartbeat_ms * NS_PER_MS
        self._timers.set(("beat", neighbour.link.id), at, lambda now: self._beat(neighbour, now))

    def _watch(self, neighbour: Neighbour, now: Instant) -> None:
        """Suspect a neighbour that is silent, and end its link if it stays silent."""
        link = neighbour.link
        if link.state != READY:
            return
        quiet = now - link.heard_at
        suspect_ns, dead_ns = self._config.suspect_ms * NS_PER_MS, self._config.dead_ms * NS_PER_MS
        if quiet >= dead_ns:
            self._links.hang_up(link, Reason.SILENT, "nothing was heard of this broker")
            return
        if quiet >= suspect_ns and not neighbour.suspected:
            neighbour.suspect()
            self._outbox.note(NeighbourSuspected(neighbour.name))
            self._changed(neighbour, now)
        at = link.heard_at + (dead_ns if neighbour.suspected else suspect_ns)
        self._timers.set(("watch", link.id), at, lambda now: self._watch(neighbour, now))

    def _forget_beats(self, link: Port) -> None:
        for key in ("beat", "watch"):
            self._timers.cancel((key, link.id))

    def relieve(self, neighbour: Neighbour, now: Instant) -> None:
        """A suspected neighbour was heard again."""
        neighbour.relieve()
        self._outbox.note(NeighbourRelieved(neighbour.name))
        self._watch(neighbour, now)
        self._changed(neighbour, now)

    def pong(self, neighbour: Neighbour, sent_at: int, now: Instant) -> None:
        """The answer to our ping: its round-trip time determines the cost of the link."""
        round_trip = now - sent_at
        if not 0 <= round_trip < self._config.suspect_ms * NS_PER_MS:
            return  # after a pause, the round-trip time says nothing about the link
        for aim in self._aims.values():
            if aim.link is neighbour.link:
                aim.retry_ms = RETRY_MS  # the link is up: if it breaks, try again soon
        first = not neighbour.round_trip_ns
        if self._measure(neighbour, round_trip) or first:
            self._changed(neighbour, now)

    def _measure(self, neighbour: Neighbour, round_trip_ns: int) -> bool:
        return neighbour.measure(round_trip_ns, neighbour.cluster != self._myself().cluster)

    def stand_back(self, cluster: str) -> None:
        """This cluster has no room for us: end our links in it, and do not try again soon."""
        for neighbour in list(self._neighbours.values()):
            if neighbour.cluster == cluster:
                for aim in self._aims.values():
                    if aim.link is neighbour.link:
                        aim.retry_ms = RETRY_MS_MAX
                self._links.hang_up(neighbour.link, Reason.CLUSTER_FULL, "no slot is free")

    # -- going ----------------------------------------------------------------------------------------------------

    def leave(self, link: Port, reason: Reason, now: Instant) -> None:
        """A link is gone; if it was one of our aims, dial again."""
        self._greetings.pop(link, None)
        self._renewals.forget(link)
        self.lose(link, now)
        self._forget_beats(link)
        aims = [aim for aim in self._aims.values() if aim.link is link]
        for aim in aims:
            aim.link = None
            aim.reason = link.ended or reason.word
            why, detail = aim.refused or (Reason.CLOSED, "")
            aim.refused = None
            self._dial_later(aim, why, now, detail)

    def lose(self, link: Port, now: Instant) -> None:
        """A neighbour's link is gone, or about to end: nothing is sent over it any more."""
        neighbour = link.neighbour
        if neighbour is None or neighbour.link is not link:
            return  # it was replaced
        if self._neighbours.get(neighbour.broker) is neighbour:
            del self._neighbours[neighbour.broker]
            self._down(neighbour, now)

    def report(self) -> list[dict[str, str]]:
        """The addresses to which links are kept, and for each missing link the reason."""
        return [
            {"address": aim.config.address, "state": LINKED, "broker": neighbour.name, "reason": ""}
            if (neighbour := self._neighbours.get(aim.broker)) is not None
            else {"address": aim.config.address, "state": DIALLING, "broker": "", "reason": aim.reason}
            for aim in self._aims.values()
        ]


def _frame_of(proof: str) -> bytes:
    return control(Kind.PROOF, 0, encode(Proof(proof)))


def _is_equal(wanted: str, proof: str) -> bool:
    return compare_digest(wanted.encode(), proof.encode())  # as bytes: it accepts only ASCII strings


def _is_certified(link: Port) -> bool:
    return link.peer.identity is not None and link.peer.identity.has(Role.BROKER) and link.state != GONE
