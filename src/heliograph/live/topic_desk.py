"""A client's desk for topics: its conversations with directories, owners and holders, through its own session.

In:    conversations to run; publications on Entity/<entity>.
Out:   their results; keys of encrypted topics, sent to holders and taken from owners.
State: the keyring, conversations under way, the subscription to Entity/<entity> while something is expected, keys.
Not here: the conversations themselves (discovery/topics/), the methods of a client (topics.py, topic_keys.py), our own
          topics (topic_home.py).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, Protocol

from heliograph.discovery.topics.encryption import TopicKey
from heliograph.discovery.topics.epochs import Handing, TopicEpochs
from heliograph.discovery.topics.handover import KeyOffer, KeyWait
from heliograph.discovery.topics.listing import SEALED_DOMAIN, Descriptors, encode_descriptors
from heliograph.discovery.topics.messages import ENTITY_TOPIC
from heliograph.discovery.topics.statements import Statements
from heliograph.errors import ClosedError, HeliographError, ProtocolError, Reason, RefusedError, UsageError
from heliograph.live.topic_home import TopicHome
from heliograph.model.publication import Publication

if TYPE_CHECKING:
    from heliograph.discovery.topics.exchange import TopicConversation
    from heliograph.discovery.topics.finder import FoundTopic, TopicFinder
    from heliograph.trust.chains import Holder
    from heliograph.trust.keyring import Keyring

Files = Mapping[str, Path | None]
OFFER_MS = 5_000  # for one attempt to give a holder a key; there are more …
PAUSE_S_MAX = 60.0  # … with pauses up to this
OFFERS_AT_ONCE = 64
KEY_WAIT_MS = 3_600_000
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
        self._heard_at_all = False  # an answer has come, so the broker lets us publish to directories
        self.home = TopicHome(client, lambda: self.statements)
        self._epochs: TopicEpochs | None = None
        self._tasks: dict[tuple[str, bytes], asyncio.Task[None]] = {}  # what and topic -> keys sent, or awaited
        self._givers: dict[bytes, tuple[str, str]] = {}  # topic -> its owner, and who signed our grant
        self.directories: dict[str, None] = {}  # finished a search of ours, so they are expected to do it again

    @property
    def statements(self) -> Statements:
        """Makes and checks our signatures. UsageError without a certificate."""
        if self._statements is None:
            self._statements = Statements(self._keyring())
        return self._statements

    def _keyring(self) -> Keyring:
        from heliograph.config.keyring_files import load_keyring
        from heliograph.live.parallel_checks import check_all
        from heliograph.trust.config import TlsConfig

        named = {what: str(path) for what, path in self._files.items() if path is not None}
        keyring = load_keyring(TlsConfig(**named))
        if keyring is None or keyring.own is None or "authority" not in named:
            raise UsageError(
                "topics are created and found by parties that prove themselves: give certificate, key and authority"
            )
        keyring.check_with(check_all)
        entity = keyring.learn(keyring.own.chain, time_ns()).identity.entity
        if entity != self._client.entity:
            raise UsageError(
                f"the certificate is for {entity}, but the broker knows this client as {self._client.entity}"
            )
        return keyring

    @property
    def epochs(self) -> TopicEpochs:
        """The keys of encrypted topics."""
        if self._epochs is None:
            self._epochs = TopicEpochs(self.statements.keyring, secrets.token_bytes)
        return self._epochs

    @property
    def entity(self) -> str:
        """The entity of our certificate, which creates topics."""
        keyring = self.statements.keyring
        assert keyring.own is not None
        return keyring.learn(keyring.own.chain, time_ns()).identity.entity

    def seal(self, secret: Descriptors, certificates: Sequence[bytes | str]) -> bytes:
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
                    if checked is None and not self._heard_at_all:
                        checked = asyncio.create_task(self._check(conversation, event))
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
            self._heard_at_all = False  # perhaps the broker no longer lets us
            raise conversation.error

    async def find(self, finder: TopicFinder) -> AsyncIterator[FoundTopic]:
        """Run a search: each topic as it is found. Topics of our own are taken home."""
        entity = self.entity
        async for _ in self.run(finder):
            for found in finder.take():
                if found.advertisement.creator == entity and found.change != "gone":
                    await self.home.take(found)
                yield found
        for found in finder.take():
            yield found

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
        """Read a message once, whatever number of conversations are under way."""
        now = monotonic_ns()
        self._heard_at_all = True
        try:
            said = self.statements.read(publication.payload, time_ns())
        except ProtocolError as error:
            for conversation, _ in self._open if error.reason is not Reason.SEAL_BROKEN else ():
                conversation.refuse(error)  # a broken seal: it is for another session of ours
            return
        for conversation, event in list(self._open):
            before = conversation.wake_at
            conversation.take_statement(said, now)
            if conversation.has_news or conversation.wake_at != before:
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

    def return_home(self) -> None:
        """We are connected: if this entity has topics from earlier, answer searches for them, in the background."""
        has_key = all(self._files.get(what) is not None for what in ("certificate", "key", "authority"))
        if has_key and self.home.may_have_topics:
            self._begin(("present", b""), self.home.come_back())

    def expect(self, directories: Sequence[str]) -> None:
        """These directories finished a search, so they are expected to finish the next one."""
        self.directories = dict.fromkeys(directories)

    # -- keys of encrypted topics ---------------------------------------------------------------------------------

    def change_key(self, topic: bytes, revoked: bytes, expires_ms: int) -> None:
        """A grant of a topic of ours was revoked. If the topic is encrypted, begin a new epoch.

        The new key is sent to the other holders, in the background, until each has it or there is a newer one.
        """
        renewed = self.epochs.revoke(topic, revoked, time_ns() // 1_000_000, expires_ms)
        if renewed is not None:
            self._begin(("give", topic), self._hand_over(topic, renewed))

    def expect_keys(self, topic: bytes, owner: str, delegator: str = "") -> None:
        """From now on, take the keys that the owner of a topic, or the delegator of our grant, sends."""
        if ("take", topic) not in self._tasks or self._givers.get(topic) != (owner, delegator):
            self._givers[topic] = (owner, delegator)
            self._begin(("take", topic), self._take_keys(topic, owner, delegator))

    def stop(self) -> None:
        """The client is closed."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def _begin(self, what: tuple[str, bytes], work: Coroutine[Any, Any, None]) -> None:
        before = self._tasks.pop(what, None)
        if before is not None:
            before.cancel()
        task = self._tasks[what] = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(lambda done: self._tasks.pop(what) if self._tasks.get(what) is done else None)

    async def _hand_over(self, topic: bytes, handing: Handing) -> None:
        """A holder that is away gets it when it is back, as long as this client runs."""
        room, pause_s, left = asyncio.Semaphore(OFFERS_AT_ONCE), 1.0, list(handing.holders)
        while left:
            given = await asyncio.gather(*(self._offer(topic, handing, holder, room) for holder in left))
            left = [holder for holder, is_given in zip(left, given, strict=True) if not is_given]
            if left:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _offer(self, topic: bytes, handing: Handing, holder: Holder, room: asyncio.Semaphore) -> bool:
        seed, without = secrets.token_bytes(32), handing.without
        async with room:
            offer = KeyOffer(self.statements, topic, handing.key, holder, seed, timeout_ms=OFFER_MS, without=without)
            try:
                await self.converse(offer)
            except HeliographError:
                return False
            return True

    async def _take_keys(self, topic: bytes, owner: str, delegator: str) -> None:
        while True:
            seed = secrets.token_bytes(32)
            wait = KeyWait(self.statements, topic, owner, seed, timeout_ms=KEY_WAIT_MS, delegator=delegator)
            try:
                key: TopicKey = await self.converse(wait)
                if self.epochs.learn(topic, owner, key, time_ns()) and self.epochs.newest(topic) == key:
                    handing = self.epochs.pass_on(topic, key, wait.without, time_ns() // 1_000_000)
                    self._begin(("give", topic), self._hand_over(topic, handing))
            except ProtocolError:
                continue  # the owner's certificate ended meanwhile
            except ClosedError:
                return
            except HeliographError:
                await asyncio.sleep(1.0)  # no owner spoke, or there is no broker


def chain_of(pem: bytes | str) -> bytes:
    """The chain in a PEM file of certificates."""
    from heliograph.trust.chains import encode_chain, load_pem

    return encode_chain(load_pem(pem))


def ms_of(seconds: float) -> int:
    """Seconds as milliseconds, at least one."""
    return max(1, round(seconds * 1_000))
