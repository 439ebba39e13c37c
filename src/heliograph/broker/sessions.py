"""Sessions: how a link becomes a client's, stays alive and ends in good order.

In:    HELLO, PING, PONG, GOODBYE; the outcome of token checks; time.
Out:   WELCOME or GOODBYE; pings; the end of silent, unproven and superseded links; drain.
State: which origin is on which link, and which links are unproven so far, by source.
Not here: fair shares of places (shares.py), whether a credential is valid (credentials.py), what the client does
          afterwards (subscriptions.py, reading.py).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from heliograph.broker.access import Access
from heliograph.broker.config import BrokerConfig
from heliograph.broker.credentials import WRONG, Claim, Credentials
from heliograph.broker.links import Link, Links
from heliograph.broker.routing.ports import GONE, NEW, NOTE_EVERY_NS, PROVING, READY, Port, describe_end
from heliograph.broker.routing.seen import NS_PER_MS, Origins
from heliograph.broker.shares import Shares, source_of
from heliograph.broker.shedding import Shedding
from heliograph.broker.subscriptions import Subscriptions
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, Outbox, Ticket, Timers
from heliograph.model.identity import Identity, Role
from heliograph.model.origin import SECRET_BYTES_MAX, SECRET_BYTES_MIN, origin_of
from heliograph.notes import DrainEnded, DrainStarted, OriginsForgotten, PeerRefused, SessionWelcomed
from heliograph.wire import bodies
from heliograph.wire.frames import VERSION, Frame, Kind, control
from heliograph.wire.times import FEATURE as TIME

FEATURES: tuple[str, ...] = (TIME, bodies.MOVE)  # what a client may ask for; names are added here and in the protocol
NAME_LENGTH_MAX = 128
GAPS_RESTING_MAX = 16  # gaps remembered for a session that has no link
CLAIMS_MAX = 16  # tokens being checked: two workers take 0.8 s, on a busy computer 2 s, as long as a handshake may take
CLAIMS_PER_SOURCE_MAX = 8  # the other half is for other sources: wrong tokens cost an attacker nothing
LOOKS_MAX = 64  # links examined for one newcomer while the broker is full
NOBODY = "none"  # the proof of peers that showed no credential
WITHDRAWN = "your token was removed or changed"
OF_SERVICE = "this is the session of a service of this broker"
PATIENCE_PARTS = 4  # of the handshake time: after one part, a peer loses its place to others if all are taken
STORE_SERVICE = "store"  # the service whose pipe has the role store
SILENCES_MAX = 3  # keep-alive intervals without a byte before a link counts as dead
UNBOUNDED = 1 << 62  # until a driver reports how many it can have


class Sessions:
    """The handshakes and keep-alive of client links."""

    def __init__(
        self,
        config: BrokerConfig,
        incarnation: int,
        inbox_root: bytes,
        links: Links,
        subscriptions: Subscriptions,
        shedding: Shedding,
        outbox: Outbox,
        timers: Timers,
        *,
        pong: Callable[[int, Instant], bytes],
        others: Callable[[], list[str]],
    ) -> None:
        self._config = config
        self._network = config.network.name  # another name needs a restart
        self._incarnation = incarnation
        self._links = links
        self._subscriptions = subscriptions
        self._shedding = shedding
        self._outbox = outbox
        self._timers = timers
        self._access = Access(config.access)
        self._credentials = Credentials(config.tokens, config.local_digest)
        limits = config.limits
        self.origins = Origins(limits.origins_max, limits.origin_horizon_ms, limits.gaps_max)
        self._by_origin: dict[int, Link] = {}
        self._services = 0  # sessions on pipes
        self._claims: dict[Ticket, tuple[Link, bodies.Hello, Claim]] = {}
        self._auth = {listener.name: listener.auth for listener in config.listeners}
        self._unproven: Shares[Link] = Shares()  # in their handshake
        self._idle: Shares[Link] = Shares()  # anonymous, and unused when last checked
        self._strangers: dict[str, int] = {}  # source -> its unproven links
        self._noted_at = -NOTE_EVERY_NS  # when it was last noted that a peer was turned away
        self.room = UNBOUNDED  # links that the driver can have
        self.draining = False
        self._inbox_root = inbox_root  # Inbox/<this broker>
        self._pong = pong  # a PONG that tells the time
        self._others = others  # addresses of other brokers, for clients that have to leave
        self.group_origins = Origins(limits.origins_max, limits.origin_horizon_ms, limits.gaps_max)
        self.repeat_origins = Origins(limits.origins_max, limits.origin_horizon_ms, limits.gaps_max)

    # -- coming -------------------------------------------------------------------------------------------------

    def attach(self, link: Link, now: Instant) -> None:
        """A peer dialled in; it has a byte and a time budget to identify itself."""
        limits = self._config.limits
        source = source_of(link.peer.address)
        if self.draining:
            self._links.hang_up(link, Reason.DRAINING, "this broker takes no new links")
        elif self._strangers.get(source, 0) >= limits.links_per_source_max:
            self._turn_away(link, Reason.SOURCE_OVER_SHARE, "your address has as many links as one may have", now)
        elif len(self._links.by_id) > self.links_max and not self._free_a_link(source):
            few_files = self.room < limits.links_max
            hint = "; no more files may be opened for peers, raise ulimit -n" if few_files else ""
            text = f"this broker has {self.links_max} links already{hint}"
            self._turn_away(link, Reason.LINKS_OVER_LIMIT, text, now)
        elif len(self._unproven) >= limits.links_unproven_max and not self._free_a_handshake(source, now):
            over_share = self._unproven.count(source) > 1
            reason = Reason.SOURCE_OVER_SHARE if over_share else Reason.LINKS_OVER_LIMIT
            self._turn_away(link, reason, "too many links are in their handshake; try again", now)
        else:
            link.count_for(source)
            self._strangers[source] = self._strangers.get(source, 0) + 1
            self._unproven.add(source, link)
            at = now + limits.handshake_ms * NS_PER_MS
            self._timers.set(("handshake", link.id), at, lambda now: self._too_slow(link))

    def _turn_away(self, link: Link, reason: Reason, text: str, now: Instant) -> None:
        """Refuse a link for lack of room. Each is counted, but only one per second is noted: a flood has many."""
        if now >= self._noted_at + NOTE_EVERY_NS:
            self._noted_at = now
            self._outbox.note(PeerRefused(link.id, reason, f"{link.peer.address}: {text}"))
        self._links.hang_up(link, reason, text)

    def make_room(self, links_max: int) -> None:
        """The number of links that the driver can have."""
        self.room = links_max

    @property
    def links_max(self) -> int:
        """How many links are allowed: by the settings, and by what the process can have."""
        return min(self._config.limits.links_max, self.room)

    def _free_a_handshake(self, source: str, now: Instant) -> bool:
        """End a handshake to make room for a newcomer: one of the source that has most, or else the oldest.

        Never one whose token we are checking.
        """
        link = self._unproven.victim(source)
        if link is None:
            oldest = islice(self._unproven, CLAIMS_MAX + 1)
            link = next((each for each in oldest if each.state != PROVING), None)
            patience_ns = self._config.limits.handshake_ms * NS_PER_MS // PATIENCE_PARTS
            if link is None or now - link.came_at < patience_ns:
                return False
        self._evict(link)
        return True

    def _free_a_link(self, source: str) -> bool:
        """End an unproven, unused link to make room for a newcomer from another source."""
        for _ in range(LOOKS_MAX):
            link = self._idle.victim(source)
            if link is None:
                break
            if not _is_used(link):
                self._evict(link)
                return True
            self._idle.remove(link)
        link = self._unproven.victim(source)
        if link is None:
            return False
        self._evict(link)
        return True

    def _evict(self, link: Link) -> None:
        self._forget_stranger(link)
        self._links.hang_up(link, Reason.SOURCE_OVER_SHARE, "others need the place")

    def _forget_stranger(self, link: Link) -> None:
        """The link is no longer unproven, or it is gone."""
        self._unproven.remove(link)
        self._idle.remove(link)
        if not link.source:
            return
        left = self._strangers[link.source] - 1
        if left:
            self._strangers[link.source] = left
        else:
            del self._strangers[link.source]
        link.count_for("")

    def attach_pipe(self, link: Link) -> None:
        """A service of this node: trusted, and never silent or slow."""
        link.serve(Identity(link.peer.address, (), "pipe"))

    def hello(self, link: Link, frame: Frame, now: Instant) -> None:
        """A HELLO frame. ProtocolError if the peer cannot be welcomed."""
        if link.state != NEW and not link.is_pipe:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "only the first frame is a HELLO")
        if link.peer.ticket is not None:  # we dialled it, so no listener says what it must prove
            raise ProtocolError(Reason.KIND_UNEXPECTED, "HELLO is not allowed on a link that this broker opened")
        hello = bodies.decode(bodies.Hello, frame.payload)
        _check(hello)
        if link.is_pipe:  # a service that also publishes and subscribes acts for the broker
            roles = (Role.BROKER, Role.STORE) if link.service == STORE_SERVICE else (Role.BROKER,)
            self._welcome(link, hello, Identity(link.service, roles, "pipe"), now)
            return
        self._shedding.check(hello)
        auth = self._auth.get(link.peer.listener or "", "none")
        verdict = self._credentials.judge(link.peer, hello, auth)
        if isinstance(verdict, Identity):
            self._welcome(link, hello, verdict, now)
            return
        if len(self._claims) >= CLAIMS_MAX:
            raise ProtocolError(Reason.LINKS_OVER_LIMIT, "too many tokens are being checked; try again")
        source = source_of(link.peer.address)
        of_source = sum(source_of(other.peer.address) == source for other, _, _ in self._claims.values())
        if of_source >= CLAIMS_PER_SOURCE_MAX:
            raise ProtocolError(Reason.SOURCE_OVER_SHARE, "too many tokens from your address are in check; try again")
        ticket = self._outbox.job(verdict.job)
        self._claims[ticket] = (link, hello, verdict)
        link.prove()
        self._outbox.holds.append((link.id, True))

    def proven(self, ticket: Ticket, right: bool | None, now: Instant) -> Link | None:
        """A token check ended; ``right`` is None if it could not be done. Returns the link to continue reading from."""
        claimed = self._claims.pop(ticket, None)
        if claimed is None:
            return None
        link, hello, claim = claimed
        if link.state != PROVING:
            return None
        if right is None:  # not "wrong credential": a client would not try again, and its token may be valid
            self._links.hang_up(link, Reason.LINKS_OVER_LIMIT, "the credential could not be checked; try again")
            return None
        if not right or claim.identity is None:
            self._outbox.note(PeerRefused(link.id, Reason.CREDENTIAL_WRONG, WRONG))
            self._links.hang_up(link, Reason.CREDENTIAL_WRONG, WRONG)
            return None
        self._credentials.remember(claim)
        self._outbox.holds.append((link.id, False))
        link.wait_for(0)
        try:
            self._welcome(link, hello, claim.identity, now)
        except Exception as error:
            self._outbox.guard.caught("welcome", error, now, link.id, claim.identity.entity)
            self._links.hang_up(link, Reason.INTERNAL_ERROR)
            return None
        return link if link.state == READY else None

    def _welcome(self, link: Link, hello: bodies.Hello, identity: Identity, now: Instant) -> None:
        limits = self._config.limits
        origin = origin_of(bytes.fromhex(hello.secret))
        older = self._by_origin.get(origin)
        if older is not None and older.is_pipe and not link.is_pipe:  # whatever secret the peer may have learned
            self._outbox.note(PeerRefused(link.id, Reason.ORIGIN_FOREIGN, OF_SERVICE))
            self._links.hang_up(link, Reason.ORIGIN_FOREIGN, OF_SERVICE)
            return
        if older is not None:
            self._links.hang_up(older, Reason.TAKEN_OVER, "the same session came on another link")
        self._by_origin[origin] = link
        forgotten = self.origins.forgotten
        seen = self.origins.use(origin, now)
        if self.origins.forgotten > forgotten:
            self._outbox.note(OriginsForgotten(self.origins.forgotten - forgotten))
        keep_alive_ms = min(max(hello.keep_alive_ms, limits.keep_alive_ms_min), limits.keep_alive_ms_max)
        link.begin(
            identity,
            hello.name,
            b"%b/%016x" % (self._inbox_root, origin),
            seen,
            may_be_held=hello.hold,
            timed=TIME in hello.features or TIME in hello.needs,
            keep_alive_ns=keep_alive_ms * NS_PER_MS,
        )
        self._give_table(link)
        self._subscriptions.hearings.renew(link)
        self._subscriptions.rights.resume(link.id, (origin, identity), now)
        self._timers.cancel(("handshake", link.id))
        if identity.proof == NOBODY and link.source:
            self._unproven.remove(link)
            self._idle.add(link.source, link)
        else:
            self._forget_stranger(link)
        if link.is_pipe:
            self._services += 1
        else:
            self._watch(link, now)
            self._shedding.welcomed(link, hello, now)
        body = bodies.Welcome(
            version=VERSION,
            broker=self._config.name,
            incarnation=self._incarnation,
            origin=f"{origin:016x}",
            entity=identity.entity,
            roles=[role.value for role in identity.roles],
            features=[feature for feature in FEATURES if feature in hello.features or feature in hello.needs],
            limits={
                "payload_bytes_max": limits.payload_bytes_max,
                "subscriptions_per_link_max": limits.subscriptions_per_link_max,
            },
            keep_alive_ms=keep_alive_ms,
            inbox=link.inbox.decode(),
            seen=f"{seen.next - 1:016x}" if seen.next > 0 else "",
            network=self._network,
            slow=seen.slow,
        )
        self._links.put(link, control(Kind.WELCOME, 0, bodies.encode(body)))
        if seen.slow:
            self._links.put(link, control(Kind.PING))  # the PONG shows that the client has read the WELCOME
        if not link.is_pipe:  # the node's own services need no note
            self._outbox.note(SessionWelcomed(link.id, identity.entity, identity.proof, link.name))

    def _give_table(self, link: Link) -> None:
        table = self._subscriptions.table(self._access.profile(link.identity))
        table.join()
        link.use(table)

    @property
    def clients(self) -> int:
        """How many sessions are not those of our own services."""
        return len(self._by_origin) - self._services

    @property
    def crowd_permille(self) -> int:
        """The number of sessions, in per mille of the limit."""
        return 1_000 * self.clients // self.links_max

    def by_origin(self, origin: int) -> Link | None:
        """The link of the session with this origin; None if it is not here."""
        return self._by_origin.get(origin)

    def is_broker(self, port: Port) -> None:
        """The peer is a broker, not a client: its handshake is over."""
        self._forget_stranger(self._links.by_id[port.id])

    def _too_slow(self, link: Link) -> None:
        if link.state in (NEW, PROVING):
            self._links.hang_up(link, Reason.HANDSHAKE_TOO_SLOW, "no complete HELLO in time")

    # -- staying ------------------------------------------------------------------------------------------------

    def ping(self, link: Link, frame: Frame, now: Instant) -> None:
        """A PING is answered after everything that came before it. From now on, denied topics are reported again."""
        link.told.clear()  # otherwise a client that flushes would not be told of its second denied publication
        timed = link.timed or link.neighbour is not None
        self._links.put(link, self._pong(frame.sequence, now) if timed else control(Kind.PONG, frame.sequence))

    def pong(self, link: Link, frame: Frame, now: Instant) -> None:
        """A PONG shows that the client has read what was sent before its PING; ``heard_at`` is already updated."""
        if link.seen is not None:
            link.seen.tell_slow()

    def _watch(self, link: Link, now: Instant) -> None:
        """Ping a quiet peer, and give up a silent one."""
        if link.state != READY:
            return
        if link.is_held:
            link.excuse(now)
        quiet = now - link.heard_at
        if quiet >= SILENCES_MAX * link.keep_alive_ns:
            self._links.hang_up(link, Reason.SILENT, "nothing was heard for three keep-alive intervals")
            return
        if quiet >= link.keep_alive_ns or link.is_held:
            self._links.put(link, control(Kind.PING))
            at = now + link.keep_alive_ns
        else:
            at = link.heard_at + link.keep_alive_ns
        self._timers.set(("alive", link.id), at, lambda now: self._watch(link, now))

    # -- going --------------------------------------------------------------------------------------------------

    def goodbye(self, link: Link, frame: Frame, now: Instant) -> None:
        """The client leaves: end the link once all earlier output is written."""
        said = bodies.decode(bodies.Goodbye, frame.payload)
        link.say_why(describe_end(said.reason, said.text))
        self._links.hang_up(link, Reason.GOODBYE)

    def leave(self, link: Link, now: Instant) -> None:
        """The link is gone."""
        self._forget_stranger(link)
        if link.seen is None:
            return
        if self._by_origin.get(link.origin) is link:
            del self._by_origin[link.origin]
            self._shedding.left(link)
            self._services -= link.is_pipe
            self.origins.rest(link.origin, now)
            link.seen.close_gaps(GAPS_RESTING_MAX)  # few publications are under way, and many sessions may have ended
        self._drop_table(link)

    def _drop_table(self, link: Link) -> None:
        table = link.table
        assert table is not None
        if not table.leave():
            self._subscriptions.drop_table(table)
            self._access.forget(table.profile)

    def drain(self, grace_ms: int | None, now: Instant) -> None:
        """Accept no new links, ask clients to leave, and end when they have left or the grace period is over."""
        grace_ms = self._config.limits.drain_grace_ms if grace_ms is None else grace_ms
        clients = self._clients()
        self.draining = True
        self._outbox.note(DrainStarted(len(clients)))
        warning = control(
            Kind.GOODBYE, 0, bodies.goodbye(Reason.DRAINING, "please leave", max(1, grace_ms), self._others())
        )
        services = [link for link in self._links.by_id.values() if link.is_pipe and link.seen is not None]
        for link in clients + services:
            self._links.put(link, warning)
        self._timers.set("drain", now + grace_ms * NS_PER_MS, self.stop)
        self.check_drained(now)

    def check_drained(self, now: Instant) -> None:
        """While draining: are all clients gone?"""
        if self.draining and not self._clients():
            self.stop(now)

    def stop(self, now: Instant) -> None:
        """End every client's link, and then the broker."""
        if self._outbox.stop:
            return
        clients = self._clients()
        reason = Reason.DRAINING if self.draining else Reason.STOPPING
        for link in list(self._links.by_id.values()):
            if not link.is_pipe:
                self._links.hang_up(link, reason, "this broker stops")
        self.draining = True
        self._timers.cancel("drain")
        self._outbox.finish()
        self._outbox.note(DrainEnded(len(clients)))

    def _clients(self) -> list[Link]:
        """All links but those of neighbours: a draining broker stays in the network while its clients move away."""
        return [link for link in self._links.by_id.values() if link.is_client and link.state != GONE]

    # -- changing -----------------------------------------------------------------------------------------------

    def reload(self, config: BrokerConfig) -> None:
        """Put new rules, tokens and limits in force for existing and future links. Those that rest on a token whose
        record is gone or has changed end, also while it is being checked."""
        self._config = config
        self._access = Access(config.access)
        before, self._credentials = self._credentials, Credentials(config.tokens, config.local_digest)
        claimed = [(link, claim.identity) for link, _, claim in self._claims.values() if claim.identity is not None]
        proven = [(link, link.identity) for link in self._links.by_id.values() if link.identity.proof == "token"]
        for link, identity in claimed + proven:
            if self._credentials.differs(before, identity.entity):
                self._links.hang_up(link, Reason.CREDENTIAL_WRONG, WITHDRAWN)
        for link in self._links.by_id.values():
            if link.seen is None:
                continue
            assert link.table is not None
            heard = (link.table.profile.heard, link.table.profile.default)
            if not link.table.leave():
                self._subscriptions.drop_table(link.table)
            self._give_table(link)
            if heard != (link.table.profile.heard, link.table.profile.default):
                self._subscriptions.hearings.renew(link)
            link.told.clear()


def _is_used(link: Link) -> bool:
    """True if the client has used its session."""
    return link.state == READY and (bool(link.subscriptions) or (link.seen is not None and link.seen.accepted > 0))


def _check(hello: bodies.Hello) -> None:
    if VERSION not in hello.versions:
        raise ProtocolError(Reason.VERSION_UNSUPPORTED, f"this broker speaks version {VERSION}")
    missing = [feature for feature in hello.needs if feature not in FEATURES]
    if missing:
        raise ProtocolError(Reason.FEATURE_UNSUPPORTED, f"this broker has no {missing[0][:64]!r}")
    try:
        secret = bytes.fromhex(hello.secret)
    except ValueError:
        raise ProtocolError(Reason.BODY_MALFORMED, "secret is not hexadecimal") from None
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise ProtocolError(Reason.BODY_MALFORMED, "secret must have 32 to 128 hex digits")
    if len(hello.name) > NAME_LENGTH_MAX or not hello.name.isprintable():
        raise ProtocolError(Reason.BODY_MALFORMED, f"name must be printable, of at most {NAME_LENGTH_MAX} characters")
