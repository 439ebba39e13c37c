"""Handing over the key of an encrypted topic: whoever granted it sends it on Entity/<holder>, sealed for the holder.

In:    a key of an epoch, the holder; HANDOVER and ACKNOWLEDGED messages.
Out:   KeyOffer: the holder has the key. KeyWait: the key, accepted only from the topic's owner and from the delegator,
       and only with the owner's statement.
State: that of one conversation.
Not here: encrypting events (encryption.py), the statement (key_statements.py), keys that come with a grant (bundle.py),
          when a new epoch begins and which holders get its key (epochs.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from heliograph.discovery.topics.encryption import TopicKey
from heliograph.discovery.topics.exchange import TopicConversation
from heliograph.discovery.topics.key_statements import read_key
from heliograph.discovery.topics.messages import ENTITY_TOPIC, Handover, TopicAcknowledged, TopicKind
from heliograph.discovery.topics.statements import Statement, Statements
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder


class KeyOffer(TopicConversation):
    """The giver's side: repeated until the holder acknowledges it. ``result`` is the holder's name."""

    def __init__(
        self,
        statements: Statements,
        topic: bytes,
        key: TopicKey,
        holder: Holder,
        seed: bytes,
        *,
        timeout_ms: int,
        without: Sequence[bytes] = (),
    ) -> None:
        super().__init__(statements, seed, timeout_ms)
        self._topic = topic
        self._key = key
        self._holder = holder
        self._without = without
        self._ids: dict[bytes, None] = {}

    def _say(self, now: Instant) -> None:
        id = self.draw()
        self._ids[id] = None
        body = Handover(
            id=id,
            issued_ms=self.wall_ms(now),
            topic=self._topic,
            key=self._key.key,
            statement=self._key.statement,
            without=list(self._without),
        )
        topic = f"{ENTITY_TOPIC}/{self._holder.identity.entity}"
        self.outgoing.append((topic, self._statements.write(body, self._holder, self._chains())))

    def _chains(self) -> tuple[bytes, ...]:
        """The chain of the topic's owner, if that is not us: every message has our own."""
        own, chain = self._statements.keyring.own, self._key.chain
        assert own is not None
        return (chain,) if chain and chain != own.chain else ()

    def _hear(self, said: Statement, now: Instant) -> None:
        if said.message.kind is not TopicKind.ACKNOWLEDGED or said.entity != self._holder.identity.entity:
            return
        if self._statements.body(said, TopicAcknowledged).id in self._ids:
            self.succeed(said.entity)

    def _time_out(self, now: Instant) -> None:
        self.fail(Reason.TIME_OUT, f"{self._holder.identity.entity} did not take the key")


class KeyWait(TopicConversation):
    """The holder's side: it sends nothing until an offer arrives. ``result`` is a TopicKey."""

    def __init__(
        self, statements: Statements, topic: bytes, owner: str, seed: bytes, *, timeout_ms: int, delegator: str = ""
    ) -> None:
        super().__init__(statements, seed, timeout_ms)
        self._topic = topic
        self._owner = owner
        self._delegator = delegator or owner  # that signed our grant
        self.without: tuple[bytes, ...] = ()  # grants whose holders must not get the key

    def _say(self, now: Instant) -> None:
        """Sends nothing: the other side begins."""

    def _hear(self, said: Statement, now: Instant) -> None:
        if said.message.kind is not TopicKind.HANDOVER:
            return
        offer = self._statements.body(said, Handover)
        if offer.topic != self._topic or not offer.key:
            return
        if said.entity not in (self._owner, self._delegator):
            raise ProtocolError(Reason.OWNER_OTHER, f"{said.entity} offers a key of a topic of {self._owner}")
        self._statements.check_fresh(said, offer.id, offer.issued_ms, self.wall_ns(now))
        keyring, wall_ns = self._statements.keyring, self.wall_ns(now)
        key = read_key(keyring, self._topic, self._owner, offer.key, offer.statement, wall_ns)
        acknowledged = TopicAcknowledged(offer.id, "")
        self.outgoing.append((f"{ENTITY_TOPIC}/{said.entity}", self._statements.write(acknowledged, said.holder)))
        self.without = tuple(offer.without)
        self.succeed(key)

    def _time_out(self, now: Instant) -> None:
        self.fail(Reason.TOPIC_KEY_MISSING, f"{self._owner} offered no key in {self._timeout_ms} ms")
