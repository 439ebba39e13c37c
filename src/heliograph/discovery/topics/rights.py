"""The service "rights" at each broker: checks grants, and tells its broker which link may use which created topic.

In:    requests of clients: bundles with proof of the holder's key, revocations; of directories: what was revoked.
Out:   orders to the broker (allow, forbid, expel); answers; revocations and revocation lists for neighbours.
State: that of its parts.
Not here: what grants mean (grants.py), the broker's tables (broker/rights.py, broker/expelled.py), discovery
          (directory.py), proof of a key (possession.py), what a revocation proves (revocations.py), revocations
          between brokers (revocation_news.py).
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from heliograph.discovery.revocation_lists import RIGHTS, ListsRenewed
from heliograph.discovery.topics.bundle import GrantBundle, decode_bundle
from heliograph.discovery.topics.grants import TopicRight, check_revoked, owner_right, right_of
from heliograph.discovery.topics.listing import TopicAdvertisement
from heliograph.discovery.topics.possession import Possession
from heliograph.discovery.topics.revocation_news import RevocationNews, token_of
from heliograph.discovery.topics.revocations import prove
from heliograph.discovery.topics.right_requests import (
    REQUESTS,
    ListDigests,
    ListPiece,
    ListRevocations,
    PresentGrant,
    RevokeGrants,
    RightsRequest,
    read_base64,
    read_hex,
)
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
from heliograph.model.chance import Seed, nonces_of, secret_of
from heliograph.model.identity import Role
from heliograph.services.broker_session import BrokerSession
from heliograph.wire.frames import Frame
from heliograph.wire.requests import Asker

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

TICK_NS = 10_000 * NS_PER_MS
CHAINS_MAX = 8
PIPE = "pipe"  # the proof of a service of the same node


class RightsKeeper:
    """A machine (machine.py): the service of one broker."""

    def __init__(self, broker: str, *, seed: Seed, keyring: Keyring) -> None:
        self._broker = broker
        self._outbox = Outbox()
        self._timers = Timers()
        self._clock = WallTime()
        self._statements = Statements(keyring)
        self._keyring = keyring
        self._secret = secret_of(seed, "rights")
        self._since = nonces_of(seed, "rights since").hex()[:16]  # of this start: numbers of notices begin anew
        self._possession = Possession(broker, nonces_of(seed, "rights"), keyring)
        self._session: BrokerSession | None = None
        self._counts: Counter[str] = Counter()
        self._news = RevocationNews(self._statements, self._clock, self._timers, self._counts, self._possession.take)

    # -- requests of clients --------------------------------------------------------------------------------------

    def _serve(self, frame: Frame, request: RightsRequest, asker: Asker, now: Instant) -> None:
        wall_ns = self._clock.at(now)
        if wall_ns is None:
            raise ProtocolError(Reason.STALE, "the time is not known yet, so certificates cannot be checked")
        match request:
            case PresentGrant():
                self._present(frame, request, asker, wall_ns, now)
            case RevokeGrants():
                self._revoke(frame, request, wall_ns)
            case ListDigests():
                self._answer(frame, {"lists": self._news.list_digests(wall_ns)})
            case ListPiece():
                part = self._news.list_part(read_hex(request.digest), request.at, wall_ns)
                self._answer(frame, {"size": part.size, "data": b64encode(part.data).decode()})
            case ListRevocations():
                self._tell_revocations(frame, request, asker)

    def _present(self, frame: Frame, request: PresentGrant, asker: Asker, wall_ns: int, now: Instant) -> None:
        bundle = decode_bundle(request.bundle)
        advertisement, claimed = self._right(bundle, wall_ns)
        right = self._proven(frame, request, asker, claimed, wall_ns)
        if right is None:
            return
        order = {
            "do": "allow",
            "link": frame.origin,
            "root": advertisement.root,
            "publish": right.publish,
            "subscribe": right.subscribe,
            "ms": max(1, right.until_ms - wall_ns // NS_PER_MS),
            "grants": [token_of(what) for what in right.ends_with if what[1]],
            "serials": [f"{serial:X}" for serial in right.serials],
        }
        said = {"ok": True, "root": advertisement.root, "until_ms": right.until_ms, "holder": right.holder}
        said |= {"publish": right.publish, "subscribe": right.subscribe, "topic": advertisement.synopsis.topic}

        def allowed(answer: Any, now: Instant) -> None:
            assert self._session is not None
            if answer is None or not answer.get("ok"):
                self._session.refuse(frame, Reason.RIGHTS_OVER_LIMIT, "the broker has no room for this right")
                return
            self._counts["allowed"] += 1
            self._answer(frame, said)

        assert self._session is not None
        if not self._session.order(order, allowed):
            raise ProtocolError(Reason.RIGHTS_OVER_LIMIT, "too many rights are being granted; try again")

    def _right(self, bundle: GrantBundle, wall_ns: int) -> tuple[TopicAdvertisement, TopicRight]:
        if len(bundle.chains) > CHAINS_MAX:
            raise ProtocolError(Reason.GRANT_INVALID, f"{len(bundle.chains)} chains: each costs time to verify")
        self._statements.learn(bundle.chains, wall_ns)
        advertisement, creator, directory = self._statements.read_advertise(bundle.advertise, wall_ns)
        is_revoked = self._news.known.has
        if bundle.grants:
            right = right_of(self._keyring, advertisement, bundle.grants, wall_ns, is_revoked)
        else:
            right = owner_right(advertisement)
            check_revoked(right, is_revoked)
        return advertisement, right.resting_on(creator, directory)

    def _proven(
        self, frame: Frame, request: PresentGrant, asker: Asker, right: TopicRight, wall_ns: int
    ) -> TopicRight | None:
        """The right, if the requester has proven the holder's key; without any proof, it is challenged.

        A link ends with the certificate that it was proven by, so that only another one is a further thing to rest on.
        """
        if asker.proof == "certificate" and asker.entity == right.holder:
            return right
        challenge = self._possession.take(frame.origin)
        if request.proof is None or challenge is None:
            self._answer(frame, {"challenge": self._possession.challenge(frame.origin), "broker": self._broker})
            return None
        prover = self._possession.check(challenge, read_base64(request.proof), asker.session, right.holder, wall_ns)
        return right.resting_on(prover)

    # -- revocations ----------------------------------------------------------------------------------------------

    def _revoke(self, frame: Frame, request: RevokeGrants, wall_ns: int) -> None:
        bundle = decode_bundle(request.bundle)
        is_new = self._news.take(prove(self._statements, read_base64(request.statement), bundle, wall_ns))
        self._answer(frame, {"ok": True, "new": is_new})

    def _tell_revocations(self, frame: Frame, request: ListRevocations, asker: Asker) -> None:
        """Revocations name the holders of grants and hidden topics, so that only directories are told."""
        if asker.proof != PIPE and Role.DIRECTORY.value not in asker.roles:
            raise ProtocolError(Reason.ASK_DENIED, f"{asker.entity} is no directory")
        after = request.after if request.since == self._since else 0
        self._answer(frame, {"since": self._since, **self._news.page(after)})

    # -- the contract ---------------------------------------------------------------------------------------------

    def _answer(self, frame: Frame, answer: dict[str, Any]) -> None:
        assert self._session is not None
        self._session.answer(frame, msgspec.json.encode(answer))

    def _refused(self, reason: Reason) -> None:
        self._counts[reason.word] += 1

    def attach(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The broker is attached."""
        secret = sha256(self._secret + b"session").digest()
        self._session = BrokerSession(
            *(link, self._outbox, secret),
            requests=REQUESTS,
            serve=self._serve,
            refused=self._refused,
            attendant=self._news,
        )
        self._news.join(self._session)
        self._session.attend(RIGHTS)
        self._timers.set("tick", now + TICK_NS, self._tick)

    def receive(self, link: LinkId, data: bytes, now: Instant) -> None:
        """RequestTypes, answers to orders, and messages of neighbours."""
        if self._session is not None:
            self._session.receive(data, now)

    def _tick(self, now: Instant) -> None:
        wall_ns = self._clock.at(now)
        if wall_ns is not None:
            self._news.expire(wall_ns // NS_PER_MS)
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
        """ListsRenewed: the lists of the node's files are in force, and spread."""
        if not isinstance(command, ListsRenewed):
            raise UsageError(f"the service rights does not know the command {command!r}")
        self._news.renewed(now)

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
        return {**self._news.report(), "counts": dict(sorted(self._counts.items()))}
