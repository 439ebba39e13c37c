"""`heliograph topic`: create, show, renew and withdraw topics.

In:    descriptions of a topic; UUIDs of topics.
Out:   the topic to publish on, or what is known of it; machine-readable with --json.
State: none; topics are found again at the directories.
Not here: searching (discover_topic.py), rights (topic_rights.py), the conversations (discovery/topics/).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import connection as c
from heliograph.cli.shape import examples, group, say
from heliograph.cli.tables import show
from heliograph.errors import HeliographError, UsageError

if TYPE_CHECKING:
    from heliograph.discovery.topics.finder import FoundTopic
    from heliograph.discovery.topics.listing import TopicAdvertisement
    from heliograph.live.client import Client

app = group("Create topics and look after them.")

Uuid = Annotated[str, typer.Argument(metavar="UUID", help="The topic: its UUID, or Topics/UUID.")]
AsJson = Annotated[bool, typer.Option("--json", help="As one JSON object.")]
Lifetime = Annotated[str, typer.Option(metavar="TIME", help="How long it lives: 90s, 15m, 12h, 30d.")]
_TIME = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)\Z")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds_of(text: str) -> float:
    """A duration as people write it."""
    found = _TIME.match(text)
    if found is None:
        raise UsageError(f"{text!r} is not a time: write 90s, 15m, 12h or 30d")
    return float(found[1]) * _UNITS[found[2]]


def plain(advertisement: TopicAdvertisement) -> dict[str, Any]:
    """An advertisement as plain values."""
    creation, said = advertisement.creation, advertisement.creation.descriptors
    return {
        "uuid": advertisement.uuid,
        "topic": advertisement.synopsis.topic,
        "owner": advertisement.creator,
        "institution": creation.institution,
        "space": creation.space,
        "path": said.path,
        "text": said.text,
        "keywords": said.keywords,
        "properties": said.properties,
        "document": said.document,
        "synopsis": advertisement.synopsis.type,
        "readers": creation.readers,
        "encrypted": creation.encrypted,
        "created": time_of(advertisement.created_ms),
        "expires": time_of(advertisement.expires_ms),
        "directory": advertisement.directory,
    }


def time_of(stamp_ms: int) -> str:
    """A time for people."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(stamp_ms / 1_000, UTC).isoformat(timespec="seconds")


def _property(text: str) -> tuple[str, str | int | float | bool]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--property {text!r}: write NAME=VALUE")
    if value in ("true", "false"):
        return name, value == "true"
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


async def find(client: Client, uuid: str) -> FoundTopic:
    """One topic, or an error if there is none."""
    async for found in client.discover_topics(topics=[uuid], count=1):
        return found
    raise HeliographError(f"topic_unknown: {uuid}: no directory shows it to {client.entity}")


@app.command(name="create")
@c.with_connection
def create(
    there: c.Connection,
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="Such as plant/hall-3/temperature.")] = "",
    text: Annotated[str, typer.Option(help="What it is, in words.")] = "",
    keyword: Annotated[list[str] | None, typer.Option(help="A keyword; can be repeated.")] = None,
    property: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A typed property; can be repeated.")
    ] = None,
    document: Annotated[Path | None, typer.Option(metavar="FILE", help="An XML document that describes it.")] = None,
    synopsis: Annotated[str, typer.Option(help="What follows the UUID in its name.")] = "",
    synopsis_type: Annotated[str, typer.Option(help="string, integer, tags, properties or xml.")] = "string",
    lifetime: Lifetime = "1d",
    institution: Annotated[str, typer.Option(help="Whose it is.")] = "",
    space: Annotated[str, typer.Option(help="The topic space it belongs to.")] = "",
    reader: Annotated[
        list[str] | None, typer.Option(metavar="ENTITY", help="Only these entities find it; can be repeated.")
    ] = None,
    encrypted: Annotated[bool, typer.Option("--encrypted", help="Events are encrypted; grantees get the key.")] = False,
    directory: Annotated[str, typer.Option(metavar="TDN-ID", help="The topic directory that is to sign it.")] = "",
    as_json: AsJson = False,
) -> None:
    """Create a topic, and print its name."""
    xml = document.read_text("utf-8") if document is not None else ""

    async def work() -> None:
        async with c.connected(there, name="heliograph topic") as client:
            created = await client.create_topic(
                path,
                text=text,
                keywords=keyword or (),
                properties=dict(map(_property, property or ())),
                document=xml,
                synopsis=synopsis,
                synopsis_type=synopsis_type,
                lifetime=seconds_of(lifetime),
                institution=institution,
                space=space,
                readers=reader or ("*",),
                encrypted=encrypted,
                directory=directory,
            )
        if as_json:
            show(plain(created.advertisement), True)
        else:
            print(created.topic)
            until = time_of(created.advertisement.expires_ms)
            say(f"signed by {created.directory}, kept by {', '.join(created.stored_by)}, until {until}")

    c.run(work())


@app.command(name="show", epilog=examples("heliograph topic show 0f8b1a2c-… --json"))
@c.with_connection
def show_topic(there: c.Connection, uuid: Uuid, as_json: AsJson = False) -> None:
    """Show a topic, with the signatures of its directory and its owner verified."""

    async def work() -> None:
        async with c.connected(there, name="heliograph topic") as client:
            found = await find(client, uuid)
            owner = client.verify_topic(found)
            show({**plain(found.advertisement), "verified": f"{found.directory} and {owner}"}, as_json)

    c.run(work())


@app.command(name="renew", epilog=examples("heliograph topic renew 0f8b1a2c-… --lifetime 30d"))
@c.with_connection
def renew(there: c.Connection, uuid: Uuid, lifetime: Lifetime = "1d") -> None:
    """Extend the lifetime of a topic of yours."""

    async def work() -> None:
        async with c.connected(there, name="heliograph topic") as client:
            renewed = await client.renew_topic(await find(client, uuid), seconds_of(lifetime))
            say(f"{renewed.topic} until {time_of(renewed.advertisement.expires_ms)}")

    c.run(work())


@app.command(name="withdraw", epilog=examples("heliograph topic withdraw 0f8b1a2c-…"))
@c.with_connection
def withdraw(there: c.Connection, uuid: Uuid) -> None:
    """Withdraw a topic of yours: it is no longer found."""

    async def work() -> None:
        async with c.connected(there, name="heliograph topic") as client:
            say(f"withdrawn at {await client.withdraw_topic(uuid)}")

    c.run(work())
