"""How a simulated entity uses rights: it presents grants, makes and revokes them, and passes on keys.

In:    its script and notebook; answers of the broker's service "rights"; publications on topics that it may read.
Out:   requests to that service; subscriptions; entries "granted", "revoking", "revoked", "allowed", "read" and
       "leaked" of the journal.
State: what the broker allows on the present link; keys of encrypted topics.
Not here: what grants mean (discovery/topics/grants.py), the same for programs (live/topics.py, live/topic_desk.py).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from heliograph.discovery.topics import messages
from heliograph.discovery.topics.bundle import GrantBundle, encode_bundle
from heliograph.discovery.topics.creation import OwnTopic
from heliograph.discovery.topics.encryption import KEY_DOMAIN, TopicKey, decrypt, encrypt
from heliograph.discovery.topics.epochs import Handing, TopicEpochs
from heliograph.discovery.topics.exchange import TopicConversation
from heliograph.discovery.topics.grants import (
    Revocation,
    TopicGrant,
    glance_grant,
    read_grant,
    sign_grant,
    sign_revocation,
)
from heliograph.discovery.topics.handover import KeyOffer, KeyWait
from heliograph.discovery.topics.key_statements import read_key
from heliograph.discovery.topics.listing import TopicAdvertisement, decode_advertisement
from heliograph.discovery.topics.statements import Statements
from heliograph.errors import ProtocolError
from heliograph.machine import Instant
from heliograph.model.publication import Publication
from heliograph.sim.topic_party import AskService, Make
from heliograph.sim.topics.authority import chain_of_party
from heliograph.sim.topics.notebook import TopicNotebook
from heliograph.sim.topics.plans import GrantPlan, TopicPlan
from heliograph.sim.topics.script import Script, Write
from heliograph.trust import envelope

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

NS_PER_MS = 1_000_000
AGAIN_NS = 1_000 * NS_PER_MS  # a request that got no answer
PRESENT_NS = 2_000 * NS_PER_MS  # grants are shown again
LIFE_MS = 3_000_000
OFFER_MS = 3_000
WAIT_MS = 600_000


class RightsHolder(Protocol):
    """What it needs of its entity."""

    entity: str
    statements: Statements

    def wall_ns(self, now: Instant) -> int:
        """The entity's clock."""
        ...

    def tell(self, command: AskService, now: Instant) -> None:
        """Ask a service of the broker."""
        ...

    def listen(self, filter: str, deliver: Callable[[Publication, Instant], None]) -> None:
        """Subscribe on the present link."""
        ...

    def begin(self, make: Make, now: Instant) -> TopicConversation:
        """Begin a conversation."""
        ...


class RightsUser:
    """The rights of one entity."""

    def __init__(
        self,
        actor: RightsHolder,
        keyring: Keyring,
        notebook: TopicNotebook,
        script: Script,
        write: Write,
        hand_over: Callable[[str, str, GrantBundle], None],
    ) -> None:
        self._actor = actor
        self._keyring = keyring
        self._book = notebook
        self._script = script
        self._write = write
        self._hand_over = hand_over
        self._epochs = TopicEpochs(keyring, keyring.draw)
        self._allowed: dict[str, None] = {}  # grants, and topics of our own, that we may use on this link
        self._asked: dict[str, Instant] = {}  # what was asked on this link, and when it may be asked again
        self._heard: dict[str, None] = {}  # topics that we subscribed to on this link
        self._intruded: dict[str, None] = {}  # the same without a right
        self._links = 0
        self._offers: dict[tuple[bytes, str], tuple[KeyOffer, Handing]] = {}  # topic and holder -> the newest key
        self._waits: dict[str, KeyWait] = {}  # grant -> for the keys of later epochs

    def begin_link(self) -> None:
        """A new link: everything is asked again."""
        self._links += 1
        for what in (self._allowed, self._asked, self._heard, self._intruded):
            what.clear()

    def may_use(self, topic: str) -> bool:
        """True if our broker lets us publish on this topic of ours."""
        return topic in self._allowed

    def shown(self) -> tuple[bytes, ...]:
        """The grants that our searches show."""
        held = list(self._book.held.values())
        return tuple(encode_bundle(one).encode() for one in held)[: messages.GRANTS_MAX]

    def go_on(self, elapsed_s: float, now: Instant) -> None:
        """Present what is not presented, make and revoke what is due."""
        for name, topic in self._book.topics.items():
            if name in self._book.ending:
                self._tell_end(name, Revocation(topic.advertisement.id, self._wall_ms(now)), _bundle_of(topic), now)
            elif name not in self._allowed:
                self._present(name, _bundle_of(topic), "", now)
        for name, bundle in self._book.held.items():  # again and again: a broker must refuse what was revoked
            self._present(name, bundle, advertised_in_bundle(bundle).synopsis.topic, now)
        for plan in self._script.grants:
            if elapsed_s >= plan.at_s and plan.name not in self._book.made:
                self._make(plan, now)
            if plan.revoke_s and elapsed_s >= plan.revoke_s and plan.name in self._book.made:
                self._revoke(plan, now)

    # -- using ----------------------------------------------------------------------------------------------------

    def _present(self, name: str, bundle: GrantBundle, topic: str, now: Instant) -> None:
        """Show our broker a right; with a topic, subscribe to it once that is allowed."""
        link = self._links

        def answered(answer: Any, now: Instant) -> None:
            if link != self._links or answer is None or "challenge" in answer:
                return
            self._allowed[name] = None
            if topic:
                self._write("allowed", self._actor.entity, name)
                self._take_key(name, bundle, now)
                self._hear(topic)

        self._ask(f"present {name}", {"do": "present", "bundle": encode_bundle(bundle)}, answered, now, PRESENT_NS)

    def _ask(
        self, what: str, body: dict[str, Any], answered: Callable[[Any, Instant], None], now: Instant, again_ns: int
    ) -> None:
        if now >= self._asked.get(what, 0):
            self._asked[what] = now + again_ns
            self._actor.tell(AskService("rights", body, answered), now)

    def _hear(self, topic: str) -> None:
        if topic not in self._heard:
            self._heard[topic] = None
            self._actor.listen(topic, self._read)

    def intrude(self, topic: str) -> None:
        """Subscribe without any right, once on each link."""
        held = [advertised_in_bundle(bundle).synopsis.topic for bundle in self._book.held.values()]
        if topic not in self._intruded and topic not in held:
            self._intruded[topic] = None
            self._actor.listen(topic, self._read)

    def _read(self, publication: Publication, now: Instant) -> None:
        self._write("read", self._actor.entity, *self._opened(publication.topic, publication.payload))

    def open_leaked(self, topic: str, payload: bytes) -> None:
        """Try to open what was not sent to us."""
        self._write("leaked", self._actor.entity, *self._opened(topic, payload))

    def _opened(self, topic: str, payload: bytes) -> tuple[str, int, bool | None]:
        """The mark of a publication, and whether we can open it; None if it is not encrypted."""
        name, number, rest = payload.split(b"/", 2)
        is_open: bool | None = None
        if rest:
            ids = dict.fromkeys(advertised_in_bundle(bundle).id for bundle in self._book.held.values())
            keys = [key for id in ids for key in self._epochs.keys(id)]
            try:
                is_open = decrypt(keys, topic, rest) == b"secret"
            except ProtocolError:
                is_open = False
        return name.decode(), int(number), is_open

    def sealed(self, plan: TopicPlan, topic: OwnTopic, mark: str, now: Instant) -> bytes:
        """The payload of a publication: its mark, which all can read, and a secret on an encrypted topic."""
        if not plan.encrypted:
            return mark.encode()
        key = self._epochs.own(topic.advertisement.id, self._wall_ms(now))
        return mark.encode() + encrypt(key, topic.topic, b"secret", self._keyring.draw)

    # -- granting and revoking ------------------------------------------------------------------------------------

    def _make(self, plan: GrantPlan, now: Instant) -> None:
        """Sign a grant, and hand it over as if by mail."""
        using = self._book.held.get(plan.using) if plan.using else self._own_bundle(plan.topic)
        if using is None:
            return  # what it is about does not exist yet
        own, wall_ms, advertisement = self._keyring.own, self._wall_ms(now), advertised_in_bundle(using)
        assert own is not None
        parent = glance_grant(using.grants[-1]) if using.grants else None
        expires_ms = min(advertisement.expires_ms if parent is None else parent.expires_ms, wall_ms + LIFE_MS)
        grant = TopicGrant(
            *(self._keyring.draw(16), advertisement.id, plan.holder, wall_ms - 60_000, expires_ms),
            subscribe=plan.subscribe,
            discover=plan.discover,
            delegate=plan.delegate,
            parent=sha256(using.grants[-1]).digest() if using.grants else b"",
        )
        key = self._key(advertisement.creator, advertisement.id, now) if advertisement.creation.encrypted else None
        chains = dict.fromkeys([*using.chains, own.chain])
        sealed = statement = b""
        if key is not None:
            holder = self._keyring.learn(chain_of_party(plan.holder), wall_ms * NS_PER_MS)
            sealed, statement = self._keyring.seal(holder, KEY_DOMAIN, key.key, advertisement.id), key.statement
            self._epochs.granted(advertisement.id, grant.id, holder, grant.expires_ms)
            chains[key.chain] = None
        grants = [*using.grants, sign_grant(self._keyring, grant)]
        made = self._book.made[plan.name] = GrantBundle(using.advertise, list(chains), grants, sealed, statement)
        self._write("granted", self._actor.entity, plan.name)
        self._hand_over(plan.name, plan.holder, made)

    def _own_bundle(self, topic: str) -> GrantBundle | None:
        own = self._book.topics.get(topic)
        return None if own is None else _bundle_of(own)

    def _revoke(self, plan: GrantPlan, now: Instant) -> None:
        bundle, grant = self._book.made[plan.name], glance_grant(self._book.made[plan.name].grants[-1])
        if plan.name not in self._book.ending:
            self._book.ending[plan.name] = None
            self._write("revoking", self._actor.entity, plan.name)
            if plan.using:
                self._epochs.withdraw(grant.topic, grant.id, self._wall_ms(now))
            else:
                handing = self._epochs.revoke(grant.topic, grant.id, self._wall_ms(now), grant.expires_ms)
                if handing is not None:
                    self._pass_on(grant.topic, handing, now)
        said = Revocation(grant.topic, self._wall_ms(now), grant.id)
        self._tell_end(plan.name, said, GrantBundle(b"", bundle.chains, bundle.grants), now)

    def _tell_end(self, name: str, said: Revocation, proof: GrantBundle, now: Instant) -> None:
        """Tell our broker that a grant, or a topic, is over, until it has heard it."""
        if name in self._book.told:
            return

        def answered(answer: Any, now: Instant) -> None:
            if answer is not None and name not in self._book.told:
                self._book.told[name] = None
                self._write("revoked", self._actor.entity, name)

        statement = b64encode(sign_revocation(self._keyring, said)).decode()
        body = {"do": "revoke", "statement": statement, "bundle": encode_bundle(proof)}
        self._ask(f"end {name}", body, answered, now, AGAIN_NS)

    # -- keys of encrypted topics ---------------------------------------------------------------------------------

    def _key(self, owner: str, topic: bytes, now: Instant) -> TopicKey | None:
        if owner == self._actor.entity:
            return self._epochs.own(topic, self._wall_ms(now))
        return self._epochs.newest(topic)

    def _take_key(self, name: str, bundle: GrantBundle, now: Instant) -> None:
        """The key that came with a grant; and wait for those that come later."""
        if not bundle.key:
            return
        wall_ns, advertisement = self._actor.wall_ns(now), advertised_in_bundle(bundle)
        self._actor.statements.learn(bundle.chains, wall_ns)
        opened = self._keyring.open(KEY_DOMAIN, bundle.key, advertisement.id)
        key = read_key(self._keyring, advertisement.id, advertisement.creator, opened, bundle.statement, wall_ns)
        self._epochs.learn(advertisement.id, advertisement.creator, key, wall_ns)
        if name not in self._waits:
            self._wait(name, bundle, now)

    def _wait(self, name: str, bundle: GrantBundle, now: Instant) -> None:
        wall_ns, advertisement = self._actor.wall_ns(now), advertised_in_bundle(bundle)
        signer = read_grant(self._keyring, bundle.grants[-1], wall_ns).signer.identity.entity
        waiting = self._actor.begin(
            lambda say, seed: KeyWait(
                say, advertisement.id, advertisement.creator, seed, timeout_ms=WAIT_MS, delegator=signer
            ),
            now,
        )
        assert isinstance(waiting, KeyWait)
        self._waits[name] = waiting

    def _pass_on(self, topic: bytes, handing: Handing, now: Instant) -> None:
        for holder in handing.holders:
            offer = self._actor.begin(
                lambda say, seed, holder=holder: KeyOffer(  # type: ignore[misc]
                    say, topic, handing.key, holder, seed, timeout_ms=OFFER_MS, without=handing.without
                ),
                now,
            )
            assert isinstance(offer, KeyOffer)
            self._offers[topic, holder.identity.entity] = (offer, handing)

    def collect(self, now: Instant) -> None:
        """Keys that came, and offers that nobody took, which are repeated."""
        for (topic, holder), (offer, handing) in list(self._offers.items()):
            if offer.is_over:
                del self._offers[topic, holder]
                if offer.error is not None:
                    left = tuple(one for one in handing.holders if one.identity.entity == holder)
                    self._pass_on(topic, Handing(handing.key, left, handing.without), now)
        for name, waiting in list(self._waits.items()):
            if waiting.is_over:
                bundle = self._book.held[name]
                if isinstance(waiting.result, TopicKey):
                    self._learn(bundle, waiting.result, waiting.without, now)
                self._wait(name, bundle, now)

    def _learn(self, bundle: GrantBundle, key: TopicKey, without: tuple[bytes, ...], now: Instant) -> None:
        wall_ns, advertisement = self._actor.wall_ns(now), advertised_in_bundle(bundle)
        if self._epochs.learn(advertisement.id, advertisement.creator, key, wall_ns):
            handing = self._epochs.pass_on(advertisement.id, key, without, wall_ns // NS_PER_MS)
            self._pass_on(advertisement.id, handing, now)

    def _wall_ms(self, now: Instant) -> int:
        return self._actor.wall_ns(now) // NS_PER_MS


def _bundle_of(topic: OwnTopic) -> GrantBundle:
    message = messages.unpack(topic.record)
    return GrantBundle(message.body, list(message.chains))


def advertised_in_bundle(bundle: GrantBundle) -> TopicAdvertisement:
    """The topic that a grant is for, unverified."""
    advertise = messages.decode_body(messages.Advertise, envelope.decode(bundle.advertise).payload)
    return decode_advertisement(envelope.decode(advertise.advertisement).payload)
