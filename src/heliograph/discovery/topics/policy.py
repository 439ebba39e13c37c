"""Policy: what a topic directory stores, whose searches it answers and for which entities it signs.

In:    settings; advertisements with their signers; entities.
Out:   nothing, or ProtocolError with the reason for a refusal.
State: the settings in force.
Not here: quotas, which the repository counts (repository.py), checks of every advertisement (statements.py).
Paper: [topics] §4, §5.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.listing import Creation, TopicAdvertisement
from heliograph.discovery.topics.queries import entry_of, event_of
from heliograph.errors import ProtocolError, Reason
from heliograph.matching.conditions import matches
from heliograph.matching.languages import compile


class TopicPolicy:
    """The policy of one directory."""

    def __init__(self, config: TopicDirectoryConfig, directory: str) -> None:
        self._directory = directory
        self.reload(config)

    def reload(self, config: TopicDirectoryConfig) -> None:
        """Apply new settings."""
        self._config = config
        self._where = compile("sql", config.where) if config.where else None

    def check_asker(self, entity: str) -> None:
        """ProtocolError(DISCOVERY_DENIED) if this entity gets no answers."""
        if self._config.answers and not _is_named(entity, self._config.answers):
            raise ProtocolError(Reason.DISCOVERY_DENIED, f"{self._directory} does not answer {entity}")

    def check_creation(self, creation: Creation, entity: str) -> None:
        """ProtocolError if topics are not created for this entity."""
        if not self._config.creates:
            raise ProtocolError(Reason.CREATION_REFUSED, f"{self._directory} creates no topics")
        if creation.creator != entity:
            raise ProtocolError(Reason.OWNER_OTHER, f"{entity} cannot create a topic of {creation.creator}")
        self._check_kind(creation)

    def check_advertisement(self, advertisement: TopicAdvertisement, signer: str) -> None:
        """ProtocolError if it is not stored here."""
        config = self._config
        if config.signers and signer != self._directory and signer not in config.signers:
            raise ProtocolError(Reason.SIGNER_UNWANTED, f"{self._directory} does not store what {signer} signed")
        self._check_kind(advertisement.creation)
        if self._where is not None and not matches(self._where, event_of(entry_of(advertisement, b""))):
            raise ProtocolError(Reason.TOPIC_UNWANTED, f"{self._directory} stores topics where {config.where}")

    def _check_kind(self, creation: Creation) -> None:
        config = self._config
        if config.institutions and creation.institution not in config.institutions:
            raise ProtocolError(Reason.TOPIC_UNWANTED, f"institution {creation.institution!r} is not stored here")
        if config.creators and not _is_named(creation.creator, config.creators):
            raise ProtocolError(Reason.TOPIC_UNWANTED, f"topics of {creation.creator} are not stored here")
        if config.spaces and not any(_is_below(creation.space, space) for space in config.spaces):
            raise ProtocolError(Reason.TOPIC_UNWANTED, f"topic space {creation.space!r} is not stored here")


def _is_named(entity: str, names: Sequence[str]) -> bool:
    return any(entity.startswith(name[:-1]) if name.endswith("*") else entity == name for name in names)


def _is_below(space: str, wanted: str) -> bool:
    return space == wanted or space.startswith(wanted + "/")
