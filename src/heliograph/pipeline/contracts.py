"""Contracts: what the owner of a topic promises of its payloads, in the properties of the topic's description.

In:    a client; a filter below a created topic (Topics/UUID).
Out:   the PayloadSchema of its properties ``payload.format``, ``payload.schema`` and ``payload.message``.
State: none.
Not here: descriptions of topics (discovery/topics/listing.py), schemas (payloads/).

A contract counts only if its owner signed it. It is still a stranger's text: it is checked like any other schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heliograph.errors import HeliographError, UsageError
from heliograph.model.topics import created_root
from heliograph.pipeline.created_topics import uuid_of
from heliograph.pipeline.payloads.formats import FORMATS, PayloadSchema

if TYPE_CHECKING:
    from heliograph.live.blocking import BlockingClient

CONTRACT = "contract"  # where a format is expected: that of the topic's description
FORMAT, SCHEMA, MESSAGE = "payload.format", "payload.schema", "payload.message"


def contract_of(client: BlockingClient, pattern: str, uuid: str = "") -> PayloadSchema:
    """The contract of a topic, by default the one that a filter is below.

    UsageError if there is none, RefusedError if its owner did not sign it.
    """
    root = created_root(f"Topics/{uuid}".encode() if uuid else pattern.encode())
    if root is None:
        raise UsageError(f"{pattern!r}: only a created topic has a contract: write Topics/UUID/#, or contract/UUID")
    uuid = uuid_of(root)
    for found in client.discover_topics(topics=[uuid], count=1):
        client.verify_topic(found)
        return read_contract(uuid, found.advertisement.creation.descriptors.properties)
    raise HeliographError(f"topic_unknown: {uuid}: no directory shows it to {client.entity}")


def read_contract(uuid: str, properties: dict[str, Any]) -> PayloadSchema:
    """The contract in the properties of a topic."""
    format, text, message = (properties.get(name, "") for name in (FORMAT, SCHEMA, MESSAGE))
    if format not in FORMATS:
        raise UsageError(f"topic {uuid} has no contract: its property {FORMAT} is none of {', '.join(FORMATS)}")
    if not (isinstance(text, str) and text and isinstance(message, str)):
        raise UsageError(f"topic {uuid} has no contract: its property {SCHEMA} has no text")
    return PayloadSchema(str(format), text, message)
