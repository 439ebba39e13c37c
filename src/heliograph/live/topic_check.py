"""Checks the contents of a topic directory: structure, checksums and signatures.

In:    the place of a repository that is not in use, and an authority's certificate.
Out:   the number of topics, and texts about problems.
State: none.
Not here: back ends (vaults/), signatures (discovery/topics/statements.py).
"""

from __future__ import annotations

from time import time_ns

from heliograph.discovery.topics import messages
from heliograph.discovery.topics.config import TDN
from heliograph.discovery.topics.statements import Statements
from heliograph.errors import ProtocolError
from heliograph.live.repositories import make_topic_backend
from heliograph.repository import AskTopics, Repository, TopicEntry, TopicQuestion
from heliograph.trust.chains import Authorities
from heliograph.trust.keyring import Keyring


def check_repository(place: str, authority: bytes) -> tuple[int, list[str]]:
    """Check every topic that has not expired."""
    statements = Statements(Keyring(Authorities.from_pem(authority)))
    backend = make_topic_backend(Repository(name=TDN, place=place))
    backend.open()
    try:
        problems = backend.check()
        after: int | None = 0
        checked = 0
        question = TopicQuestion(sees_all=True, expires_from_ms=time_ns() // 1_000_000 + 1)
        while after is not None:
            found = backend.ask(AskTopics(question, after, 1_000))
            problems += [f"{id.hex()}: damaged, and put aside" for id in found.damaged]
            problems += [text for entry in found.entries if (text := _fault(statements, entry)) is not None]
            checked += len(found.entries) + len(found.damaged)
            after = found.next
    finally:
        backend.close()
    return checked, problems


def _fault(statements: Statements, entry: TopicEntry) -> str | None:
    wall_ns = time_ns()
    try:
        message = messages.unpack(entry.record)
        statements.learn(message.chains, wall_ns)
        advertisement, _, _ = statements.read_advertise(message.body, wall_ns)
    except ProtocolError as error:
        return f"{entry.id.hex()}: {error}"
    same = (advertisement.id, advertisement.creator) == (entry.id, entry.owner)
    return None if same else f"{entry.id.hex()}: its record is of another topic"
