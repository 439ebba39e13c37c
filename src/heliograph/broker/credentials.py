"""Credentials: derives a peer's identity from the credential that it shows.

In:    the peer as the transport knows it, its Hello, and the listener's demand.
Out:   an Identity at once, a job to wait for (a token's hash is slow on purpose), or a Reason to refuse.
State: the tokens in force, and a bounded memory of tokens that were found valid.
Not here: certificates (the transport has verified them before attach), rights (access.py).
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest

from msgspec import Struct

from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Peer
from heliograph.model.identity import ANONYMOUS, Identity, Role
from heliograph.trust.tokens import DIGEST_BYTES, SALT_BYTES, TokenRecord, token_digest
from heliograph.wire.bodies import Hello

WRONG = "unknown entity or wrong token"
UNUSABLE = "your certificate is not one that `heliograph ca issue` makes for a client"
NOBODY = TokenRecord("", (), bytes(SALT_BYTES), bytes(DIGEST_BYTES))  # the record of unknown entities
REMEMBERED_MAX = 4_096  # tokens found valid, so that a reconnect storm does not cost a hash per client


class CheckToken(Struct, frozen=True):
    """The job: does this token hash to this digest?"""

    token: str
    salt: bytes
    digest: bytes

    def run(self) -> bool:
        """True if it does."""
        return compare_digest(token_digest(self.token, self.salt), self.digest)


class Claim(Struct, frozen=True):
    """A token that still has to be checked; ``identity`` is the peer's if the check succeeds, None if the entity is
    unknown."""

    job: CheckToken
    identity: Identity | None
    memory: bytes


class Credentials:
    """Which tokens are good, and what a listener demands."""

    def __init__(self, tokens: tuple[TokenRecord, ...], local_digest: bytes) -> None:
        self._tokens = {record.entity: record for record in tokens}
        self._local_digest = local_digest
        self._remembered: dict[bytes, None] = {}

    def differs(self, other: Credentials, entity: str) -> bool:
        """True if the record of this entity is another one there, or missing."""
        return self._tokens.get(entity) != other._tokens.get(entity)

    def judge(self, peer: Peer, hello: Hello, auth: str) -> Identity | Claim:
        """The peer's identity, proven or to be checked; ProtocolError if the listener demands more, or has no
        tokens."""
        if hello.token:
            return self._judge_token(peer, hello, auth)
        if peer.identity is not None and auth != "token":
            if not peer.identity.roles:
                raise ProtocolError(Reason.ROLE_MISSING, "the certificate names no role")
            return peer.identity
        if auth == "none":
            return ANONYMOUS
        if peer.serial and auth != "token":
            raise ProtocolError(Reason.CERTIFICATE_MALFORMED, UNUSABLE)
        wanted = {"token": "a token", "certificate": "a certificate", "any": "a certificate or a token"}[auth]
        raise ProtocolError(Reason.CREDENTIAL_MISSING, f"this listener asks for {wanted}")

    def _judge_token(self, peer: Peer, hello: Hello, auth: str) -> Identity | Claim:
        digest = sha256(hello.token.encode()).digest()
        if self._local_digest and _is_local(peer) and compare_digest(digest, self._local_digest):
            return Identity("local-admin", (Role.CLIENT, Role.ADMIN), "local")
        if auth == "certificate":
            raise ProtocolError(Reason.CREDENTIAL_MISSING, "this listener asks for a certificate, not a token")
        if not self._tokens:
            raise ProtocolError(Reason.CREDENTIAL_WRONG, WRONG)
        # An unknown entity costs a hash too: the response time must not reveal which names exist.
        record = self._tokens.get(hello.entity, NOBODY)
        identity = None if record is NOBODY else Identity(record.entity, record.roles, "token")
        memory = sha256(record.salt + record.digest + hello.token.encode()).digest()
        if identity is not None and memory in self._remembered:
            return identity
        return Claim(CheckToken(hello.token, record.salt, record.digest), identity, memory)

    def remember(self, claim: Claim) -> None:
        """The token was valid: for a while it need not be hashed again."""
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[claim.memory] = None


def _is_local(peer: Peer) -> bool:
    return peer.address.startswith(("127.", "[::1]:"))
