"""The service "rights" at each broker: checks grants, and tells its broker which link may use which created topic.

In:    requests of clients: bundles with proof of the holder's key, revocations; revocations from neighbours.
Out:   orders to the broker (allow, forbid); answers; revocations for neighbours.
State: outstanding challenges, rights that it allowed, revocations that have not expired.
Not here: what grants mean (grants.py), the broker's table (broker/rights.py), discovery (directory.py).

TLS with a certificate proves the key. Without it the service asks for a signature over a number that it chose, its
broker and the requester's session, so that the proof is valid only here and now.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter, OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.discovery.topics.bundle import GrantBundle, decode_bundle
from heliograph.discovery.topics.grants import TopicRight, owner_right, read_grant, read_revocation, right_of
from heliograph.discovery.topics.listing import TopicAdvertisement
from heliograph.discovery.topics.revocations import KnownRevocations
from heliograph.discovery.topics.statements import NS_PER_MS, Statements
from heliograph.discovery.wall_time import WallTime
from heliograph.errors import ProtocolError, Reason, UsageError
from heliograph.machine import (
    Address,
    Effects,
    Instant,
    LinkId,
    Outbox,
    Peer,
    SocketName,
    Ticket,
    Timers,
)
from heliograph.services.broker_session import BrokerSession
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, ServiceFlag
from heliograph.wire.ways import WaysHere

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

RIGHTS = "rights"
POSSESSION_DOMAIN = b"heliograph/possession/1"
CHALLENGES_MAX = 1_024
ISSUERS_MAX = 200_000  # as many as a broker can have rights
TICK_NS = 10_000 * NS_PER_MS
CHAINS_MAX = 8
HOP_BYTES_MAX = 48 << 10  # of statements offered at once

_requests = msgspec.json.Decoder(dict[str, Any])


class RevocationSpread(msgspec.Struct, frozen=True):
    """Revocations sent between the services of neighbouring brokers."""

    statements: list[bytes]
    chains: list[bytes]


_spreads = msgspec.msgpack.Decoder(RevocationSpread)


def possession_payload(challenge: str, broker: str, session: str) -> bytes:
    """What a holder signs to prove its key to one broker, on one session."""
    return f"{challenge}/{broker}/{session}".encode()


class RightsKeeper:
    """A machine (machine.py): the service of one broker."""

    def __init__(self, broker: str, *, seed: int, keyring: Keyring) -> None:
        self._broker = broker
        self._outbox = Outbox()
        self._timers = Timers()
        self._clock = WallTime()
        self._statements = Statements(keyring)
        self._keyring = keyring
        self._secret = sha256(f"{seed}/rights".encode()).digest()
        self._drawn = 0
        self._session: BrokerSession | None = None
        self._challenges: OrderedDict[LinkId, str] = OrderedDict()
        self._revocations = KnownRevocations()
        self._issuers: dict[bytes, dict[str, None]] = {}  # grants in force -> entities that may revoke them
        self._neighbours: dict[LinkId, None] = {}
        self._counts: Counter[str] = Counter()

    # -- requests of clients --------------------------------------------------------------------------------------

    def _serve(self, frame: Frame, now: Instant) -> None:
        try:
            request = _requests.decode(frame.payload)
            asker = json.loads(frame.headers)
            wall_ns = self._clock.at(now)
            if wall_ns is None:
                raise ProtocolError(Reason.STALE, "the time is not known yet, so certificates cannot be checked")
            match request.get("do"):
                case "present":
                    self._present(frame, request, asker, wall_ns, now)
                case "revoke":
                    self._revoke(frame, request, wall_ns, now)
                case other:
                    raise ProtocolError(Reason.QUESTION_UNKNOWN, f"rights cannot {other!r}")
        except ProtocolError as error:
            self._refuse(frame, error)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._refuse(frame, ProtocolError(Reason.BODY_MALFORMED, str(error)[:200]))

    def _present(
        self, frame: Frame, request: dict[str, Any], asker: dict[str, Any], wall_ns: int, now: Instant
    ) -> None:
        bundle = decode_bundle(str(request.get("bundle", "")))
        advertisement, right = self._right(bundle, wall_ns)
        if not self._has_key(frame, request, asker, right.holder, wall_ns):
            return
        for signed in bundle.grants:
            self._remember_issuer(signed, advertisement, wall_ns)
        order = {
            "do": "allow",
            "link": frame.origin,
            "root": advertisement.root,
            "publish": right.publish,
            "subscribe": right.subscribe,
            "ms": max(1, right.until_ms - wall_ns // NS_PER_MS),
            "grants": [grant.hex() for grant in right.grants],
        }
        said = {"ok": True, "root": advertisement.root, "until_ms": right.until_ms, "holder": right.holder}
        said |= {"publish": right.publish, "subscribe": right.subscribe, "topic": advertisement.synopsis.topic}

        def allowed(answer: Any, now: Instant) -> None:
            if answer is None or not answer.get("ok"):
                self._refuse(frame, ProtocolError(Reason.RIGHTS_OVER_LIMIT, "the broker has no room for this right"))
                return
            self._counts["allowed"] += 1
            self._answer(frame, said)

        assert self._session is not None
        self._session.order(order, allowed)

    def _right(self, bundle: GrantBundle, wall_ns: int) -> tuple[TopicAdvertisement, TopicRight]:
        if len(bundle.chains) > CHAINS_MAX:
            raise ProtocolError(Reason.GRANT_INVALID, f"{len(bundle.chains)} chains: each costs time to verify")
        self._statements.learn(bundle.chains, wall_ns)
        advertisement, _, _ = self._statements.read_advertise(bundle.advertise, wall_ns)
        if not bundle.grants:
            return advertisement, owner_right(advertisement)
        known = self._revocations.is_revoked
        return advertisement, right_of(self._keyring, advertisement, bundle.grants, wall_ns, known)

    def _has_key(self, frame: Frame, request: dict[str, Any], asker: dict[str, Any], holder: str, wall_ns: int) -> bool:
        """True if the requester has proven the holder's key; without any proof, it is challenged."""
        if asker["proof"] == "certificate" and asker["entity"] == holder:
            return True
        challenge = self._challenges.pop(frame.origin, None)
        proof = request.get("proof")
        if proof is None or challenge is None:
            self._answer(frame, {"challenge": self._challenge(frame.origin), "broker": self._broker})
            return False
        said = self._keyring.verify(POSSESSION_DOMAIN, b64decode(str(proof)), wall_ns)
        wanted = possession_payload(challenge, self._broker, asker["session"])
        if said.payload != wanted or said.holder.identity.entity != holder:
            raise ProtocolError(Reason.POSSESSION_UNPROVEN, f"this is not the key of {holder}")
        return True

    def _challenge(self, link: LinkId) -> str:
        self._drawn += 1
        challenge = sha256(self._secret + self._drawn.to_bytes(8, "little")).hexdigest()
        self._challenges[link] = challenge
        if len(self._challenges) > CHALLENGES_MAX:
            self._challenges.popitem(last=False)
        return challenge

    def _remember_issuer(self, signed: bytes, advertisement: TopicAdvertisement, wall_ns: int) -> None:
        grant, signer, _ = read_grant(self._keyring, signed, wall_ns)
        self._issuers.pop(grant.id, None)
        self._issuers[grant.id] = dict.fromkeys((signer, advertisement.creator))
        if len(self._issuers) > ISSUERS_MAX:  # forgotten rights end when they expire or are presented again
            del self._issuers[next(iter(self._issuers))]

    # -- revocations ----------------------------------------------------------------------------------------------

    def _revoke(self, frame: Frame, request: dict[str, Any], wall_ns: int, now: Instant) -> None:
        statement = b64decode(str(request.get("statement", "")))
        chains = [b64decode(str(one)) for one in list(request.get("chains", ()))[:CHAINS_MAX]]
        self._statements.learn(chains, wall_ns)
        self._take(statement, wall_ns, now, None)
        self._answer(frame, {"ok": True, "known": len(self._revocations)})

    def _take(self, statement: bytes, wall_ns: int, now: Instant, source: LinkId | None) -> None:
        """A revocation: end the rights that depend on it, and pass it on to all neighbours but the one it came from."""
        revocation, signer = read_revocation(self._keyring, statement, wall_ns)
        if revocation.until_ms * NS_PER_MS <= wall_ns or not self._revocations.add(statement, revocation, signer):
            return
        self._counts["revoked"] += 1
        ended = [grant.hex() for grant in revocation.grants if signer in self._issuers.get(grant, {})]
        assert self._session is not None
        if ended:
            self._session.order({"do": "forbid", "grants": ended}, lambda answer, now: None)
        self._offer([link for link in self._neighbours if link != source], [statement])

    def _offer(self, links: list[LinkId], statements: list[bytes]) -> None:
        assert self._session is not None
        for batch in _batches(statements):
            hashes = dict.fromkeys(statement[65:97] for statement in batch)
            chains = [chain for name in hashes if (chain := self._keyring.chain(name)) is not None]
            payload = msgspec.msgpack.encode(RevocationSpread(batch, chains))
            for link in links:
                self._session.send(link, payload)

    # -- neighbours (Attendant) -----------------------------------------------------------------------------------

    def hear_ways(self, ways: WaysHere, now: Instant) -> None:
        """A new neighbour, which may have been away, gets all revocations that have not expired."""
        present = dict.fromkeys(each.link for each in ways.neighbours)
        new = [link for link in present if link not in self._neighbours]
        self._neighbours = present
        if new and len(self._revocations):
            self._offer(new, self._revocations.statements())

    def hear_neighbour(self, link: LinkId, payload: bytes, now: Instant) -> None:
        """Revocations that a neighbour knows."""
        wall_ns = self._clock.at(now)
        try:
            if wall_ns is None:
                raise ProtocolError(Reason.STALE, "there is no time yet")
            try:
                spread = _spreads.decode(payload)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise ProtocolError(Reason.BODY_MALFORMED, str(error)) from None
            self._statements.learn(spread.chains, wall_ns)
            for statement in spread.statements:
                self._take(statement, wall_ns, now, link)
        except ProtocolError as error:
            self._counts[error.reason.word] += 1

    def hear_refusal(self, link: LinkId, number: int, reason: Reason, now: Instant) -> None:
        """A neighbour is slow: everything is offered again later."""
        self._counts["unsent"] += 1
        self._timers.set(("offer", link), now + TICK_NS, lambda now: self._offer_again(link))

    def _offer_again(self, link: LinkId) -> None:
        if link in self._neighbours:
            self._offer([link], self._revocations.statements())

    def hear_end(self, asker: LinkId, now: Instant) -> None:
        """A requester's link has closed."""
        self._challenges.pop(asker, None)

    # -- the contract ---------------------------------------------------------------------------------------------

    def _answer(self, frame: Frame, answer: dict[str, Any]) -> None:
        assert self._session is not None
        self._session.answer(frame, msgspec.json.encode(answer))

    def _refuse(self, frame: Frame, error: ProtocolError) -> None:
        self._counts[error.reason.word] += 1
        assert self._session is not None
        self._session.answer(frame, bodies.refusal(error.reason, error.detail[:500]), ServiceFlag.REFUSAL)

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker is attached."""
        secret = sha256(self._secret + b"session").digest()
        self._session = BrokerSession(link, self._outbox, secret, serve=self._serve, attendant=self)
        self._session.attend(RIGHTS)
        self._timers.set("tick", now + TICK_NS, self._tick)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """Requests, answers to orders, and messages of neighbours."""
        if self._session is not None:
            self._session.receive(data, now)

    def _tick(self, now: Instant) -> None:
        wall_ns = self._clock.at(now)
        if wall_ns is not None:
            self._revocations.expire(wall_ns // NS_PER_MS)
        self._timers.set("tick", now + TICK_NS, self._tick)

    def detach(self, link: LinkId, reason: Reason, now: Instant) -> None:
        """The broker is detached."""
        self._session = None

    def clock(self, wall_ns: int, now: Instant) -> None:
        """A reading of the wall clock."""
        self._clock.read(wall_ns, now)

    def wake(self, now: Instant) -> None:
        """Time has passed."""
        self._timers.run(now)

    def tell(self, command: Any, now: Instant) -> None:
        """Ignored: it takes no commands."""
        raise UsageError(f"the service rights does not know the command {command!r}")

    def receive_datagram(self, socket: SocketName, source: Address, data: bytes, now: Instant) -> None:
        """Ignored: it has no sockets."""

    def press(self, link: LinkId, pressed: bool, now: Instant) -> None:
        """Ignored: a pipe is never pressed for long."""

    def done(self, ticket: Ticket, result: Any, now: Instant) -> None:
        """Ignored: it requests nothing that has a ticket."""

    def failed(self, ticket: Ticket, reason: Reason, now: Instant) -> None:
        """Ignored: it requests nothing that has a ticket."""

    def take(self) -> Effects:
        """The effects since the last take."""
        return self._outbox.empty(self._timers.next())

    def report(self, question: str) -> Any:
        """What it allowed and refused."""
        if question != "overview":
            raise UsageError("the service rights reports its overview only")
        return {"revocations": len(self._revocations), "counts": dict(sorted(self._counts.items()))}


def _batches(statements: list[bytes]) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    size = HOP_BYTES_MAX
    for statement in statements:
        size += len(statement)
        if size > HOP_BYTES_MAX:
            found.append([])
            size = len(statement)
        found[-1].append(statement)
    return found
