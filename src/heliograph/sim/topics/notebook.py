"""What an entity keeps across its crashes: its topics, the grants that it made and got, and how far it is with them.

In:    what the entity does.
Out:   the same after its next start.
State: that.
Not here: keys of encrypted topics, which are in memory only (discovery/topics/epochs.py), what entities do (actor.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heliograph.discovery.topics.bundle import GrantBundle
from heliograph.discovery.topics.creation import OwnTopic


@dataclass(slots=True)
class TopicNotebook:
    """The notebook of one entity."""

    topics: dict[str, OwnTopic] = field(default_factory=dict)  # name in the scenario -> as it was acknowledged
    sent: dict[str, int] = field(default_factory=dict)  # name -> publications so far
    made: dict[str, GrantBundle] = field(default_factory=dict)  # grants for others, by their names
    held: dict[str, GrantBundle] = field(default_factory=dict)  # grants for us
    ending: dict[str, None] = field(default_factory=dict)  # topics and grants whose end began …
    told: dict[str, None] = field(default_factory=dict)  # … of which our broker was told …
    ended: dict[str, None] = field(default_factory=dict)  # … and topics that a directory let go
    searches: int = 0

    def count_search(self) -> int:
        """The number of the next search."""
        self.searches += 1
        return self.searches
