"""Created topics: the right to read them, shown to each broker that the source or one of its tasks connects to.

In:    a client; filters; files with grants.
Out:   the broker knows that a topic is ours, or that its owner lets us read it.
State: none.
Not here: rights (discovery/topics/grants.py), what owners say of payloads (contracts.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.discovery.topics.bundle import decode_bundle
from heliograph.errors import ProtocolError, UsageError
from heliograph.model.topics import created_root

if TYPE_CHECKING:
    from heliograph.live.blocking import BlockingClient


def show_rights(client: BlockingClient, filters: Iterable[str], grants: Iterable[str]) -> None:
    """Present the grants or, without any, show which of the topics are our own."""
    grants = list(grants)
    for file in grants:
        try:
            bundle = decode_bundle(Path(file).read_text("ascii", "replace"))
        except ProtocolError as error:
            raise UsageError(f"grants: {file}: {error.detail}") from None
        client.use_topic(bundle)
    roots = dict.fromkeys(filter(None, (created_root(each.encode()) for each in filters)))
    for root in roots if not grants else ():
        for found in client.discover_topics(topics=[uuid_of(root)], count=1):
            if found.advertisement.creator == client.entity:
                client.use_topic(found)


def uuid_of(root: bytes) -> str:
    """The UUID in ``Topics/UUID``."""
    return root.decode().partition("/")[2]
