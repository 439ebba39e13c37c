"""Topics for programs: create, renew, withdraw, discover and watch, grant and revoke, through a client's own session.

In:    calls of a program.
Out:   results of conversations with topic directories; found topics, as they arrive; grants.
State: none; the desk has it (topic_desk.py).
Not here: the conversations themselves (discovery/topics/), keys of encrypted topics (topic_keys.py), publishing and
          subscribing (live/client.py).
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import sha256
from time import monotonic_ns, time_ns
from typing import Any, Unpack

from msgspec.structs import replace

from heliograph.discovery.topics.bundle import TEXT_MAX, GrantBundle, encode_bundle
from heliograph.discovery.topics.creation import DirectoryRoll, OwnTopic, Renewal, TopicCreation, TopicWithdrawal
from heliograph.discovery.topics.encryption import KEY_DOMAIN, TopicKey
from heliograph.discovery.topics.finder import FoundTopic, SearchSummary, TopicFinder
from heliograph.discovery.topics.grants import (
    Revocation,
    TopicGrant,
    glance_grant,
    read_grant,
    sign_grant,
    sign_revocation,
)
from heliograph.discovery.topics.listing import (
    SEALED_DOMAIN,
    Creation,
    Descriptors,
    Synopsis,
    decode_descriptors,
    uuid_text,
)
from heliograph.discovery.topics.messages import Advertise, TopicQuery, decode_body, unpack
from heliograph.discovery.topics.possession import POSSESSION_DOMAIN, possession_payload
from heliograph.errors import ProtocolError, RefusedError, UsageError
from heliograph.live.options import TopicLanguageName, TopicSearchOptions
from heliograph.live.topic_desk import TopicDesk, chain_of, ms_of
from heliograph.live.topic_keys import TopicKeyCalls, advertised_in, topic_id
from heliograph.model.identity import entity_is_valid
from heliograph.repository import Scalar
from heliograph.trust import envelope


class TopicCalls(TopicKeyCalls):
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
        secret_for: Sequence[bytes | str] = (),
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
            creator=desk.entity,
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
            desk.statements, creation, secrets.token_bytes(32), directory=directory, timeout_ms=ms_of(timeout)
        )
        return await self._keep(await desk.converse(conversation))

    async def renew_topic(self, topic: OwnTopic | FoundTopic, lifetime: float, *, timeout: float = 10.0) -> OwnTopic:
        """Extend the life of a topic of ours to this many seconds from now. It is signed again."""
        chains, signed = _parts(topic)
        renewal = Renewal(signed, chains, max(1, round(lifetime)))
        conversation = TopicCreation(self._desk.statements, renewal, secrets.token_bytes(32), timeout_ms=ms_of(timeout))
        return await self._keep(await self._desk.converse(conversation))

    async def withdraw_topic(self, topic: OwnTopic | FoundTopic | str, *, timeout: float = 10.0) -> str:
        """Withdraw a topic of ours, for good; returns the directory that confirmed it first.

        All rights to it end, at every broker, and no grant to it is accepted any more.
        """
        id = topic_id(topic) if isinstance(topic, str) else topic.advertisement.id
        newest = await self._newest(id, topic, timeout)
        if newest is not None:
            chains, advertise = _shown(newest)
            await self._revoke(Revocation(id, time_ns() // 1_000_000), GrantBundle(advertise, list(chains)))
        conversation = TopicWithdrawal(self._desk.statements, id, secrets.token_bytes(32), timeout_ms=ms_of(timeout))
        confirmed: str = await self._desk.converse(conversation)
        self._desk.home.forget(id)
        self._desk.epochs.forget(id)
        return confirmed

    async def _newest(
        self, id: bytes, topic: OwnTopic | FoundTopic | str, timeout: float
    ) -> OwnTopic | FoundTopic | None:
        """Its advertisement that expires last; None if no topic of ours is known by this id."""
        known: list[OwnTopic | FoundTopic] = [] if isinstance(topic, str) else [topic]
        own = self._desk.home.topics.get(id)
        if own is not None:
            known.append(own)
        if not known:
            known = [one async for one in self.discover_topics(topics=[uuid_text(id)], count=1, timeout=timeout)]
        known = [one for one in known if one.advertisement.creator == self._desk.entity]
        return max(known, key=lambda one: one.advertisement.expires_ms, default=None)

    async def discover_topics(
        self,
        /,
        text: str = "",
        language: TopicLanguageName = "",
        *,
        summary: list[SearchSummary] | None = None,
        **options: Unpack[TopicSearchOptions],
    ) -> AsyncIterator[FoundTopic]:
        """Find topics: ``async for found in client.discover_topics("disk > 100", "sql")``. Each is yielded as it comes.

        Languages: "string", "keywords", "regex", "sql", "predicates", "xpath", "xquery", "tags", "integer"; with a text
        and no language, "keywords". Options: count, owner, institution, space, topics (UUIDs), created_from,
        created_until, expires_until (seconds since 1970), valid_for (seconds), newest_first, directories, timeout.
        """
        async for found in self._search(text, language, False, summary, dict(options)):
            yield found

    async def watch_topics(
        self, /, text: str = "", language: TopicLanguageName = "", **options: Unpack[TopicSearchOptions]
    ) -> AsyncIterator[FoundTopic]:
        """The same without an end: existing topics first, then those that appear, change (``change``) or go."""
        async for found in self._search(text, language, True, None, dict(options)):
            yield found

    async def topic_directories(self, *, wait: float = 1.0) -> list[str]:
        """The topic directories that answer within ``wait`` seconds."""
        conversation = DirectoryRoll(self._desk.statements, secrets.token_bytes(32), timeout_ms=ms_of(wait))
        found: list[str] = await self._desk.converse(conversation)
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
        certificate: bytes | str = b"",
    ) -> GrantBundle:
        """Make a grant for another entity, to be handed to it; only that entity's key can use it.

        For a topic that is not ours, ``using`` is the grant that lets us delegate. For an encrypted topic, its key is
        included (``key``, or the newest that we have), sealed for the holder whose PEM ``certificate`` is given. When
        the owner of the topic revokes a grant, the key changes; holders of our other grants get the new one from us.
        """
        keyring = self._desk.statements.keyring
        self._check_grant(topic, holder, using)
        now_ms = time_ns() // 1_000_000
        grant = TopicGrant(
            secrets.token_bytes(16),
            topic.advertisement.id,
            holder,
            now_ms - 60_000,
            min(now_ms + ms_of(lifetime), topic.advertisement.expires_ms),
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
        grants, chains_there = [*using.grants, sign_grant(keyring, grant)], [*using.chains, keyring.own.chain]
        key = self._key_for(topic, key, certificate)
        if key is None:
            return GrantBundle(using.advertise, list(dict.fromkeys(chains_there)), grants)
        holder_there = keyring.learn(chain_of(certificate), time_ns())
        sealed = keyring.seal(holder_there, KEY_DOMAIN, key.key, topic.advertisement.id)
        self._desk.epochs.granted(grant.topic, grant.id, holder_there, grant.expires_ms)
        all_chains = list(dict.fromkeys([*chains_there, key.chain]))
        return GrantBundle(using.advertise, all_chains, grants, sealed, key.statement)

    def _check_grant(self, topic: OwnTopic | FoundTopic, holder: str, using: GrantBundle | None) -> None:
        """UsageError for a grant that every broker would refuse, as far as we can know it."""
        if not entity_is_valid(holder):
            raise UsageError(f"{holder!r} is not an entity id")
        advertisement, own = topic.advertisement, self._desk.entity
        if using is None or not using.grants:
            if advertisement.creator != own:
                raise UsageError(
                    f"the topic belongs to {advertisement.creator}, and you are {own}: show the grant that lets you "
                    "delegate (using=, --using), or ask its owner"
                )
            return
        try:
            last = glance_grant(using.grants[-1])
        except ProtocolError as error:
            raise RefusedError(error.reason, error.detail) from None
        if last.topic != advertisement.id:
            raise UsageError("the grant to delegate from is for another topic")
        if last.holder != own:
            raise UsageError(f"the grant to delegate from was given to {last.holder}, and you are {own}")
        if not last.delegate:
            raise UsageError("the grant to delegate from does not allow it: its giver has to make it with --delegate")

    def _key_for(self, topic: OwnTopic | FoundTopic, key: TopicKey | None, certificate: bytes | str) -> TopicKey | None:
        """The key that a grant includes."""
        epochs, advertisement = self._desk.epochs, topic.advertisement
        if key is not None:
            self._learn_key(advertisement, key)
        elif certificate and advertisement.creation.encrypted:
            if advertisement.creator == self._desk.entity:
                return epochs.own(advertisement.id, time_ns() // 1_000_000)
            return epochs.newest(advertisement.id)
        return key

    async def use_topic(self, bundle: GrantBundle | OwnTopic | FoundTopic) -> dict[str, Any]:
        """Show the broker our right to a topic: a grant, or our ownership. RefusedError if it is not valid.

        The key of an encrypted topic that comes with the grant is kept, and so are the keys that the owner sends later.
        A grant whose key is not the one that the topic's owner signed for is refused, and not shown.
        """
        if isinstance(bundle, OwnTopic | FoundTopic):
            chains, advertise = _shown(bundle)
            bundle = GrantBundle(advertise, list(chains))
        key = self.topic_key(bundle) if bundle.key else None
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
            shown = replace(bundle, chains=list(dict.fromkeys([*bundle.chains, own.chain])))
            answer = await self._desk.ask("rights", {"do": "present", "bundle": encode_bundle(shown), "proof": proof})
        if key is not None:
            advertisement = advertised_in(bundle)
            self._learn_key(advertisement, key)
            self._desk.expect_keys(advertisement.id, advertisement.creator, self._delegator(bundle))
        return answer

    def _delegator(self, bundle: GrantBundle) -> str:
        """The entity that signed our grant: the owner, or one that may delegate."""
        keyring, wall_ns = self._desk.statements.keyring, time_ns()
        for chain in bundle.chains:
            keyring.learn(chain, wall_ns)
        return read_grant(keyring, bundle.grants[-1], wall_ns).signer.identity.entity if bundle.grants else ""

    async def revoke_grants(self, *bundles: GrantBundle) -> None:
        """Revoke grants that we signed, or that were derived from one that we signed. It spreads to every broker.

        RefusedError for the grants of others, and for one that has expired. An encrypted topic of ours gets a new key,
        which is sent to the holders of our other grants, in the background, and from these to the holders of grants
        that they delegated.
        """
        now_ms = time_ns() // 1_000_000
        for bundle in bundles:
            grant = glance_grant(bundle.grants[-1])
            said = Revocation(grant.topic, now_ms, grant.id)
            await self._revoke(said, GrantBundle(b"", bundle.chains, bundle.grants))
            if advertised_in(bundle).creator == self._desk.entity:
                self._desk.change_key(grant.topic, grant.id, grant.expires_ms)
            else:
                self._desk.epochs.withdraw(grant.topic, grant.id, now_ms)

    async def _revoke(self, said: Revocation, proof: GrantBundle) -> None:
        """Sign a revocation and hand it to our broker, with what proves that we may revoke."""
        keyring = self._desk.statements.keyring
        assert keyring.own is not None
        shown = GrantBundle(proof.advertise, list(dict.fromkeys([*proof.chains, keyring.own.chain])), proof.grants)
        text = encode_bundle(shown)
        if len(text) > TEXT_MAX:
            return  # too long to be shown to any broker: nobody has a right to it
        statement = b64encode(sign_revocation(keyring, said)).decode()
        await self._desk.ask("rights", {"do": "revoke", "statement": statement, "bundle": text})

    def open_topic(self, topic: OwnTopic | FoundTopic) -> Descriptors:
        """The sealed description of a topic, if it was sealed for us; RefusedError if not."""
        try:
            opened = self._desk.statements.keyring.open_shared(SEALED_DOMAIN, topic.advertisement.creation.sealed)
            return decode_descriptors(opened)
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
            timeout_ms=ms_of(options.pop("timeout", 5.0)),
            owners=not directories,
            grants=tuple(encode_bundle(one).encode() for one in options.pop("grants", ())),
        )
        if options:
            raise UsageError(f"discover_topics does not know {', '.join(options)}")
        try:
            async for found in desk.find(finder):
                yield found
        finally:
            if watch:
                finder.end_watch(monotonic_ns())
                await desk._send(finder)
        done: SearchSummary = finder.result
        if not directories and done is not None and not finder.is_cut:
            desk.expect(done.directories)
        if summary is not None:
            summary.append(done)

    async def _keep(self, topic: OwnTopic) -> OwnTopic:
        await self._desk.home.keep(topic)
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
