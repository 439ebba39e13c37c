"""Topics for programs: create, renew, withdraw, discover and watch, through a client's own session.

In:    calls of a program; publications on Entity/<entity>.
Out:   results of conversations with topic directories; found topics, as they arrive.
State: TopicDesk: the keyring, conversations under way, the subscription to Entity/<entity> while answers are expected.
Not here: the conversations themselves (discovery/topics/), publishing and subscribing (live/client.py).
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Protocol

from heliograph.discovery.topics.bundle import TEXT_MAX, GrantBundle, encode_bundle
from heliograph.discovery.topics.creation import DirectoryRoll, OwnTopic, Renewal, TopicCreation, TopicWithdrawal
from heliograph.discovery.topics.encryption import KEY_DOMAIN, TopicKey, decrypt, encrypt
from heliograph.discovery.topics.finder import FoundTopic, SearchSummary, TopicFinder
from heliograph.discovery.topics.grants import Revocation, TopicGrant, read_grant, sign_grant, sign_revocation
from heliograph.discovery.topics.handover import KeyOffer, KeyWait
from heliograph.discovery.topics.listing import (
    SEALED_DOMAIN,
    Creation,
    Descriptors,
    Synopsis,
    decode_advertisement,
    decode_descriptors,
    encode_descriptors,
)
from heliograph.discovery.topics.messages import ENTITY_TOPIC, OWNERS_TOPIC, Advertise, TopicQuery, decode_body, unpack
from heliograph.discovery.topics.owners import OwnTopics
from heliograph.discovery.topics.rights import POSSESSION_DOMAIN, possession_payload
from heliograph.discovery.topics.statements import Statements
from heliograph.errors import HeliographError, ProtocolError, Reason, RefusedError, UsageError
from heliograph.model.publication import Publication
from heliograph.repository import Scalar
from heliograph.trust import envelope

if TYPE_CHECKING:
    from heliograph.discovery.topics.exchange import TopicConversation
    from heliograph.trust.keyring import Keyring

Files = Mapping[str, Path | None]
LINGER_S = 2.0  # how long the subscription to Entity/<entity> stays after the last conversation


class TopicClient(Protocol):
    """What a desk needs of its client."""

    @property
    def entity(self) -> str:
        """Our entity, as the broker knows it."""
        ...

    @property
    def inbox(self) -> str:
        """The topic for answers to us."""
        ...

    async def publish(self, topic: str, payload: bytes) -> None:
        """Publish."""
        ...

    async def flush(self) -> None:
        """Wait until the broker has routed what was published."""
        ...

    def subscribe(self, filter: str = ..., *, wide: bool = ..., callback: Any = ...) -> Any:
        """Subscribe."""
        ...

    async def ask(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask a service of the broker."""
        ...


class TopicDesk:
    """One client's conversations about topics."""

    def __init__(self, client: TopicClient, files: Files) -> None:
        self._client = client
        self._files = files
        self._statements: Statements | None = None
        self._open: list[tuple[TopicConversation, asyncio.Event]] = []
        self._subscription: Any = None
        self._subscribing: asyncio.Lock = asyncio.Lock()
        self._linger: asyncio.TimerHandle | None = None
        self._own: OwnTopics | None = None
        self._own_subscription: Any = None
        self.directories: dict[str, None] = {}  # finished a search of ours, so they are expected to do it again

    @property
    def statements(self) -> Statements:
        """Makes and checks our signatures. UsageError without a certificate."""
        if self._statements is None:
            self._statements = Statements(self._keyring())
        return self._statements

    def _keyring(self) -> Keyring:
        from heliograph.config.keyring_files import load_keyring
        from heliograph.trust.config import TlsConfig

        named = {what: str(path) for what, path in self._files.items() if path is not None}
        keyring = load_keyring(TlsConfig(**named))
        if keyring is None or keyring.own is None or "authority" not in named:
            raise UsageError(
                "topics are created and found by parties that prove themselves: give certificate, key and authority"
            )
        entity = keyring.learn(keyring.own.chain, time_ns()).identity.entity
        if entity != self._client.entity:
            raise UsageError(
                f"the certificate is for {entity}, but the broker knows this client as {self._client.entity}"
            )
        return keyring

    @property
    def own(self) -> OwnTopics:
        """Our own topics, for searches that no directory answers."""
        if self._own is None:
            self._own = OwnTopics(self.statements)
        return self._own

    def seal(self, secret: Descriptors, certificates: Sequence[bytes]) -> bytes:
        """Seal descriptors for the owners of these PEM certificates, and for us."""
        keyring = self.statements.keyring
        assert keyring.own is not None
        chains = dict.fromkeys([keyring.own.chain, *(chain_of(pem) for pem in certificates)])
        readers = [keyring.learn(chain, time_ns()) for chain in chains]
        return keyring.seal_for(readers, SEALED_DOMAIN, encode_descriptors(secret))

    @property
    def session(self) -> str:
        """The broker's name for our session: the last level of its inbox topic."""
        return self._client.inbox.rpartition("/")[2]

    async def ask(self, service: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask a service of the broker."""
        return await self._client.ask(service, body)

    async def converse(self, conversation: TopicConversation) -> Any:
        """Run a conversation to its end: its result, or its error."""
        async for _ in self.run(conversation):
            pass
        return conversation.result

    async def run(self, conversation: TopicConversation) -> AsyncIterator[None]:
        """Run a conversation; yields whenever something has arrived."""
        await self._listen()
        event = asyncio.Event()
        entry = (conversation, event)
        self._open.append(entry)
        checked: asyncio.Task[None] | None = None
        try:
            conversation.start(time_ns(), monotonic_ns())
            while True:
                if conversation.outgoing:
                    await self._send(conversation)
                    checked = checked or asyncio.create_task(self._check(conversation, event))
                yield
                if conversation.is_over:
                    break
                await self._wait(conversation, event)
        finally:
            self._open.remove(entry)
            if checked is not None:
                checked.cancel()
            self._stop_listening_soon()
        if conversation.error is not None:
            raise conversation.error

    async def _send(self, conversation: TopicConversation) -> None:
        outgoing, conversation.outgoing[:] = list(conversation.outgoing), []
        for topic, payload in outgoing:
            await self._client.publish(topic, payload)

    async def _check(self, conversation: TopicConversation, event: asyncio.Event) -> None:
        """The broker may not allow us to talk to directories: fail now, not after a time-out."""
        try:
            await self._client.flush()
        except RefusedError as error:
            conversation.give_up(error)
            event.set()
        except HeliographError:
            pass  # no broker for a while: the conversation has its own time-out

    async def _wait(self, conversation: TopicConversation, event: asyncio.Event) -> None:
        delay_s = max(0.0, (conversation.wake_at - monotonic_ns()) / 1e9)
        try:
            async with asyncio.timeout(delay_s):
                await event.wait()
        except TimeoutError:
            conversation.wake(monotonic_ns())
        event.clear()

    # -- hearing --------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Subscribe to our own topic, unless that was done; at every broker, as answers may come from any."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        async with self._subscribing:
            if self._subscription is None:
                topic = f"{ENTITY_TOPIC}/{self._client.entity}"
                self._subscription = await self._client.subscribe(topic, wide=True, callback=self._hear)

    def _hear(self, publication: Publication) -> None:
        now = monotonic_ns()
        for conversation, event in list(self._open):
            conversation.hear(publication.payload, now)
            event.set()

    def _stop_listening_soon(self) -> None:
        if not self._open and self._linger is None:
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(LINGER_S, lambda: asyncio.ensure_future(self._stop_listening()))

    async def _stop_listening(self) -> None:
        self._linger = None
        subscription = self._subscription
        if self._open or subscription is None:
            return
        self._subscription = None
        try:
            await subscription.close()
        except HeliographError:
            pass  # the client was closed meanwhile

    async def present(self) -> None:
        """We own topics: listen to searches that no directory answers."""
        if self._own_subscription is None:
            self._own_subscription = await self._client.subscribe(OWNERS_TOPIC, callback=self._hear_search)

    async def _hear_search(self, publication: Publication) -> None:
        self.own.hear(publication.payload, time_ns())
        outgoing, self.own.outgoing[:] = list(self.own.outgoing), []
        for topic, payload in outgoing:
            await self._client.publish(topic, payload)


class TopicCalls:
    """The methods of a client for topics. Mixed into Client, which has the session."""

    _desk: TopicDesk

    async def create_topic(
        self,
        path: str = "",
        *,
        text: str = "",
        keywords: Sequence[str] = (),
        properties: Mapping[str, Scalar] | None = None,
        document: str = "",
        synopsis: str = "",
        synopsis_type: str = "string",
        lifetime: float = 86_400.0,
        institution: str = "",
        space: str = "",
        readers: Sequence[str] = ("*",),
        encrypted: bool = False,
        directory: str = "",
        secret: Descriptors | None = None,
        secret_for: Sequence[bytes] = (),
        timeout: float = 10.0,
    ) -> OwnTopic:
        """Create a topic: a directory gives it a UUID and signs it, we countersign and publish the advertisement.

        ``path``, ``text``, ``keywords``, ``properties`` and an XML ``document`` describe it for searches. ``synopsis``
        follows the UUID in the topic's name. ``readers`` are the entities that may find it; ``"*"`` means all.
        ``secret`` is a further description for the owners of the given PEM certificates, which not even a directory can
        read (``open_topic``). Only the owner may publish and subscribe, and entities to which the owner grants it.
        """
        desk = self._desk
        creation = Creation(
            creator=desk_entity(desk),
            lifetime_s=max(1, round(lifetime)),
            institution=institution,
            space=space,
            descriptors=Descriptors(path, text, list(keywords), dict(properties or {}), document),
            synopsis=Synopsis(synopsis_type, synopsis),
            readers=list(readers),
            encrypted=encrypted,
            sealed=b"" if secret is None else desk.seal(secret, secret_for),
        )
        conversation = TopicCreation(
            desk.statements, creation, secrets.token_bytes(32), directory=directory, timeout_ms=_ms(timeout)
        )
        return await self._keep(await desk.converse(conversation))

    async def renew_topic(self, topic: OwnTopic | FoundTopic, lifetime: float, *, timeout: float = 10.0) -> OwnTopic:
        """Extend the life of a topic of ours to this many seconds from now. It is signed again."""
        chains, signed = _parts(topic)
        renewal = Renewal(signed, chains, max(1, round(lifetime)))
        conversation = TopicCreation(self._desk.statements, renewal, secrets.token_bytes(32), timeout_ms=_ms(timeout))
        return await self._keep(await self._desk.converse(conversation))

    async def withdraw_topic(self, topic: OwnTopic | FoundTopic | str, *, timeout: float = 10.0) -> str:
        """Withdraw a topic of ours; returns the directory that confirmed it first."""
        id = topic_id(topic) if isinstance(topic, str) else topic.advertisement.id
        conversation = TopicWithdrawal(self._desk.statements, id, secrets.token_bytes(32), timeout_ms=_ms(timeout))
        confirmed: str = await self._desk.converse(conversation)
        self._desk.own.remove(id)
        return confirmed

    async def discover_topics(
        self, /, text: str = "", language: str = "", *, summary: list[SearchSummary] | None = None, **options: Any
    ) -> AsyncIterator[FoundTopic]:
        """Find topics: ``async for found in client.discover_topics("disk > 100", "sql")``. Each is yielded as it comes.

        Languages: "string", "keywords", "regex", "sql", "predicates", "xpath", "xquery", "tags", "integer"; with a text
        and no language, "keywords". Options: count, owner, institution, space, topics (UUIDs), created_from,
        created_until, expires_until (seconds since 1970), valid_for (seconds), newest_first, directories, timeout.
        """
        async for found in self._search(text, language, False, summary, options):
            yield found

    async def watch_topics(self, /, text: str = "", language: str = "", **options: Any) -> AsyncIterator[FoundTopic]:
        """The same without an end: existing topics first, then those that appear, change (``change``) or go."""
        async for found in self._search(text, language, True, None, options):
            yield found

    async def topic_directories(self, *, wait: float = 1.0) -> list[tuple[str, int]]:
        """The topic directories that answer within ``wait`` seconds, each with its number of topics."""
        conversation = DirectoryRoll(self._desk.statements, secrets.token_bytes(32), timeout_ms=_ms(wait))
        found: list[tuple[str, int]] = await self._desk.converse(conversation)
        return found

    def verify_topic(self, found: FoundTopic) -> str:
        """The entity that created a found topic, after verifying its signature; RefusedError if it is not valid."""
        try:
            return found.owner(self._desk.statements, time_ns()).identity.entity
        except ProtocolError as error:
            raise RefusedError(error.reason, error.detail) from None

    # -- rights ---------------------------------------------------------------------------------------------------

    def grant_topic(
        self,
        topic: OwnTopic | FoundTopic,
        holder: str,
        *,
        publish: bool = False,
        subscribe: bool = False,
        discover: bool = True,
        delegate: bool = False,
        lifetime: float = 86_400.0,
        using: GrantBundle | None = None,
        key: TopicKey | None = None,
        certificate: bytes = b"",
    ) -> GrantBundle:
        """Make a grant for another entity, to be handed to it; only that entity's key can use it.

        For a topic that is not ours, ``using`` is the grant that lets us delegate. For an encrypted topic, ``key`` is
        included, sealed for the holder whose PEM ``certificate`` is given.
        """
        keyring = self._desk.statements.keyring
        now_ms = time_ns() // 1_000_000
        grant = TopicGrant(
            secrets.token_bytes(16),
            topic.advertisement.id,
            holder,
            now_ms - 60_000,
            min(now_ms + _ms(lifetime), topic.advertisement.expires_ms),
            publish,
            subscribe,
            discover,
            delegate,
            sha256(using.grants[-1]).digest() if using is not None and using.grants else b"",
        )
        assert keyring.own is not None
        if using is None:
            chains, advertise = _shown(topic)
            using = GrantBundle(advertise, list(chains))
        sealed, epoch = b"", 0
        if key is not None:
            holder_there = keyring.learn(chain_of(certificate), time_ns())
            sealed, epoch = keyring.seal(holder_there, KEY_DOMAIN, key.key, topic.advertisement.id), key.epoch
        grants = [*using.grants, sign_grant(keyring, grant)]
        return GrantBundle(
            using.advertise, list(dict.fromkeys([*using.chains, keyring.own.chain])), grants, epoch, sealed
        )

    async def use_topic(self, bundle: GrantBundle | OwnTopic | FoundTopic) -> dict[str, Any]:
        """Show the broker our right to a topic: a grant, or our ownership. RefusedError if it is not valid."""
        if isinstance(bundle, OwnTopic | FoundTopic):
            chains, advertise = _shown(bundle)
            bundle = GrantBundle(advertise, list(chains))
        text = encode_bundle(bundle)
        if len(text) > TEXT_MAX:
            raise UsageError("the descriptors of this topic are too long to be shown to a broker")
        answer = await self._desk.ask("rights", {"do": "present", "bundle": text})
        if "challenge" in answer:
            keyring = self._desk.statements.keyring
            payload = possession_payload(answer["challenge"], answer["broker"], self._desk.session)
            proof = b64encode(keyring.sign(POSSESSION_DOMAIN, payload)).decode()
            own = keyring.own
            assert own is not None
            shown = GrantBundle(
                bundle.advertise,
                list(dict.fromkeys([*bundle.chains, own.chain])),
                bundle.grants,
                bundle.epoch,
                bundle.key,
            )
            answer = await self._desk.ask("rights", {"do": "present", "bundle": encode_bundle(shown), "proof": proof})
        return answer

    async def revoke_grants(self, *bundles: GrantBundle) -> None:
        """Revoke grants that we signed, or that are for a topic of ours. The revocation spreads to every broker."""
        keyring = self._desk.statements.keyring
        assert keyring.own is not None
        wall_ns = time_ns()
        for bundle in bundles:
            keyring_learned = [keyring.learn(chain, wall_ns) for chain in bundle.chains]
            assert keyring_learned
            grant, _, _ = read_grant(keyring, bundle.grants[-1], wall_ns)
            now_ms = wall_ns // 1_000_000
            said = Revocation(secrets.token_bytes(16), grant.topic, [grant.id], now_ms, grant.expires_ms)
            statement = b64encode(sign_revocation(keyring, said)).decode()
            chain = b64encode(keyring.own.chain).decode()
            await self._desk.ask("rights", {"do": "revoke", "statement": statement, "chains": [chain]})

    def topic_key(self, bundle: GrantBundle) -> TopicKey:
        """The key of an encrypted topic that came with a grant; RefusedError if it was sealed for others."""
        try:
            advertise = decode_body(Advertise, envelope.decode(bundle.advertise).payload)
            advertisement = decode_advertisement(envelope.decode(advertise.advertisement).payload)
            key = self._desk.statements.keyring.open(KEY_DOMAIN, bundle.key, advertisement.id)
        except ProtocolError as error:
            raise RefusedError(Reason.TOPIC_KEY_MISSING, error.detail) from None
        return TopicKey(bundle.epoch, key)

    async def give_topic_key(self, topic: OwnTopic, key: TopicKey, certificate: bytes, *, timeout: float = 10.0) -> str:
        """Give the key of a new epoch to the waiting holder of this PEM certificate; returns the holder's name."""
        statements = self._desk.statements
        holder = statements.keyring.learn(chain_of(certificate), time_ns())
        id, seed = topic.advertisement.id, secrets.token_bytes(32)
        offer = KeyOffer(statements, id, key, holder, seed, timeout_ms=_ms(timeout))
        given: str = await self._desk.converse(offer)
        return given

    async def await_topic_key(self, topic: FoundTopic, *, timeout: float = 60.0) -> TopicKey:
        """Wait for the next key from the topic's owner: that of the epoch after a revocation."""
        id, owner, seed = topic.advertisement.id, topic.advertisement.creator, secrets.token_bytes(32)
        key: TopicKey = await self._desk.converse(
            KeyWait(self._desk.statements, id, owner, seed, timeout_ms=_ms(timeout))
        )
        return key

    def open_topic(self, topic: OwnTopic | FoundTopic) -> Descriptors:
        """The sealed description of a topic, if it was sealed for us; RefusedError if not."""
        try:
            opened = self._desk.statements.keyring.open_shared(SEALED_DOMAIN, topic.advertisement.creation.sealed)
            return decode_descriptors(opened)
        except ProtocolError as error:
            raise RefusedError(error.reason, error.detail) from None

    def new_topic_key(self, epoch: int = 1) -> TopicKey:
        """A key for an encrypted topic. After a revocation, begin the next epoch, and grant again with its key."""
        return TopicKey(epoch, secrets.token_bytes(32))

    def encrypt_event(self, key: TopicKey, topic: str, payload: bytes) -> bytes:
        """A payload for an encrypted topic, to be published on it."""
        return encrypt(key, topic, payload, secrets.token_bytes)

    def decrypt_event(self, publication: Publication, *keys: TopicKey) -> bytes:
        """The payload of an encrypted event; RefusedError without the key of its epoch, or if it was altered."""
        try:
            return decrypt({key.epoch: key for key in keys}, publication.topic, publication.payload)
        except ProtocolError as error:
            raise RefusedError(error.reason, error.detail) from None

    async def _search(
        self, text: str, language: str, watch: bool, summary: list[SearchSummary] | None, options: dict[str, Any]
    ) -> AsyncIterator[FoundTopic]:
        desk = self._desk
        directories = tuple(options.pop("directories", ()))
        finder = TopicFinder(
            desk.statements,
            query_of(text, language, options),
            secrets.token_bytes(32),
            count=options.pop("count", 100),
            directories=directories,
            known=tuple(desk.directories),
            watch=watch,
            timeout_ms=_ms(options.pop("timeout", 5.0)),
            owners=not directories,
            grants=tuple(encode_bundle(one).encode() for one in options.pop("grants", ())),
        )
        if options:
            raise UsageError(f"discover_topics does not know {', '.join(options)}")
        try:
            async for _ in desk.run(finder):
                for found in finder.take():
                    yield found
            for found in finder.take():
                yield found
        finally:
            if watch:
                finder.end_watch(monotonic_ns())
                await desk._send(finder)
        done: SearchSummary = finder.result
        if not directories and done is not None:
            desk.directories = dict.fromkeys(done.directories)
        if summary is not None:
            summary.append(done)

    async def _keep(self, topic: OwnTopic) -> OwnTopic:
        self._desk.own.add(topic)
        await self._desk.present()
        return topic


def query_of(text: str, language: str, options: dict[str, Any]) -> TopicQuery:
    """A query from the options of a program or a command; removes the options that it uses."""

    def stamp(name: str) -> int:
        return int(options.pop(name, 0) * 1_000)

    return TopicQuery(
        language=language or ("keywords" if text else ""),
        text=text,
        owner=options.pop("owner", ""),
        institution=options.pop("institution", ""),
        space=options.pop("space", ""),
        topics=[topic_id(one) for one in options.pop("topics", ())],
        created_from_ms=stamp("created_from"),
        created_until_ms=stamp("created_until"),
        expires_until_ms=stamp("expires_until"),
        valid_for_ms=stamp("valid_for"),
        newest_first=options.pop("newest_first", False),
    )


def topic_id(text: str) -> bytes:
    """A UUID as text, or a created topic, as bytes."""
    digits = text.removeprefix("Topics/").split("/", 1)[0].replace("-", "")
    try:
        id = bytes.fromhex(digits)
    except ValueError:
        id = b""
    if len(id) != 16:
        raise UsageError(f"{text!r} is not the UUID of a topic")
    return id


def desk_entity(desk: TopicDesk) -> str:
    """The entity that creates topics at this desk."""
    own = desk.statements.keyring.own
    assert own is not None
    return desk.statements.keyring.learn(own.chain, time_ns()).identity.entity


def _parts(topic: OwnTopic | FoundTopic) -> tuple[tuple[bytes, ...], bytes]:
    """The chains and the directory's envelope of an advertisement."""
    chains, record = _shown(topic)
    return tuple(chains), decode_body(Advertise, envelope.decode(record).payload).advertisement


def _shown(topic: OwnTopic | FoundTopic) -> tuple[tuple[bytes, ...], bytes]:
    """The chains and the creator's envelope of an advertisement."""
    if isinstance(topic, FoundTopic):
        return topic.chains, topic.record
    message = unpack(topic.record)
    return message.chains, message.body


def chain_of(pem: bytes) -> bytes:
    """The chain in a PEM file of certificates."""
    from heliograph.trust.chains import encode_chain, load_pem

    return encode_chain(load_pem(pem))


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1_000))
