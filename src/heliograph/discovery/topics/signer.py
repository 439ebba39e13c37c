"""The signer of a topic directory: gives new topics a UUID, and signs their advertisements.

In:    requests to create or renew a topic, whose senders are proven.
Out:   Created: the signed advertisement, or why there is none.
State: how many nonces it has drawn. It keeps nothing of a creation: publishing the advertisement is up to the creator.
Not here: storing (directory.py), for which entities it signs (policy.py).
Paper: [topics] §5.2.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.grants import IsRevoked, check_revoked, owner_right
from heliograph.discovery.topics.listing import ID_BYTES, advertised, check_creation
from heliograph.discovery.topics.messages import Create, Created, Renew
from heliograph.discovery.topics.policy import TopicPolicy
from heliograph.discovery.topics.statements import NS_PER_MS, Statement, Statements
from heliograph.errors import ProtocolError
from heliograph.model.chance import Seed, secret_of

if TYPE_CHECKING:
    from heliograph.trust.chains import Holder


class TopicSigner:
    """Signs as one directory."""

    def __init__(
        self, config: TopicDirectoryConfig, directory: str, seed: Seed, statements: Statements, policy: TopicPolicy
    ) -> None:
        own = statements.keyring.own
        assert own is not None
        self._config = config
        self._directory = directory
        self._statements = statements
        self._policy = policy
        self._chain = own.chain
        self._secret = sha256(secret_of(seed, "topics") + own.chain_hash).digest()
        self._drawn = 0

    def reload(self, config: TopicDirectoryConfig) -> None:
        """Apply new settings."""
        self._config = config

    def create(self, said: Statement, create: Create, wall_ns: int) -> Created:
        """A new topic, with a UUID that its creator could not influence, and that belongs to no other entity."""
        try:
            check_creation(create.creation)
            self._policy.check_creation(create.creation, said.entity)
            expires_ms = self._expiry_ms(create.creation.lifetime_s, said.holder, wall_ns)
        except ProtocolError as error:
            return _refused(create.id, error)
        wall_ms = wall_ns // NS_PER_MS
        made = advertised(create.creation, self._draw_nonce(), self._directory, wall_ms, wall_ms, expires_ms)
        return Created(create.id, self._statements.sign_advertisement(made))

    def renew(self, said: Statement, renew: Renew, wall_ns: int, is_revoked: IsRevoked) -> Created:
        """The same topic, signed again: with its nonce, so it keeps its UUID; unless its owner withdrew it."""
        try:
            old, _ = self._statements.read_advertisement(renew.advertisement, wall_ns)
            self._policy.check_creation(old.creation, said.entity)
            check_revoked(owner_right(old), is_revoked)
            expires_ms = self._expiry_ms(renew.lifetime_s, said.holder, wall_ns)
        except ProtocolError as error:
            return _refused(renew.id, error)
        wall_ms = max(wall_ns // NS_PER_MS, old.issued_ms + 1)
        made = advertised(old.creation, old.nonce, self._directory, old.created_ms, wall_ms, expires_ms)
        return Created(renew.id, self._statements.sign_advertisement(made))

    def _expiry_ms(self, lifetime_s: int, creator: Holder, wall_ns: int) -> int:
        """When an advertisement expires: not after the certificates of its signers."""
        ends = min(creator.ends, self._statements.keyring.learn(self._chain, wall_ns).ends)
        lifetime_ms = min(lifetime_s, self._config.lifetime_s_max) * 1_000
        return min(wall_ns // NS_PER_MS + lifetime_ms, ends * 1_000)

    def _draw_nonce(self) -> bytes:
        self._drawn += 1
        return sha256(self._secret + self._drawn.to_bytes(8, "little")).digest()[:ID_BYTES]


def _refused(id: bytes, error: ProtocolError) -> Created:
    return Created(id, reason=error.reason, text=error.detail[:1_000])
