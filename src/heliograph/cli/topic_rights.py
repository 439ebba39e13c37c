"""`heliograph topic grant|revoke|grants|export`: rights to one's topics, and visible topics as an AsyncAPI document.

In:    a topic and an entity; grant files.
Out:   grant files, for the holder; revocations, at every broker; an AsyncAPI 3 document.
State: none; a grant file is not secret: it is useless without the holder's key.
Not here: what grants mean (discovery/topics/grants.py), creating topics (topic.py).
"""

from __future__ import annotations

from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli import connection as c
from heliograph.cli.shape import examples, say
from heliograph.cli.tables import show
from heliograph.cli.topic import AsJson, Uuid, find, plain, seconds_of, time_of
from heliograph.errors import UsageError

if TYPE_CHECKING:
    from heliograph.discovery.topics.bundle import GrantBundle
    from heliograph.live.client import Client

CUT_S = 60.0  # a grant that ends so much earlier than asked was cut

GrantFiles = Annotated[
    list[Path] | None,
    typer.Option("--grant", metavar="FILE", help="A grant to show to the broker; can be repeated."),
]


def register(app: typer.Typer) -> None:
    """Add the commands to `heliograph topic`."""
    app.command(
        name="grant",
        epilog=examples(
            "heliograph topic grant 0f8b1a2c-… bob --subscribe --out bob.grant",
            "heliograph topic grant 0f8b1a2c-… carol --publish --delegate --for 7d --out carol.grant",
            "heliograph topic grant 0f8b1a2c-… dan --subscribe --using carol.grant --out dan.grant",
        ),
    )(c.with_connection(_grant))
    app.command(name="revoke", epilog=examples("heliograph topic revoke bob.grant"))(c.with_connection(_revoke))
    app.command(name="grants", epilog=examples("heliograph topic grants *.grant"))(_grants)
    app.command(
        name="export", epilog=examples("heliograph topic export > topics.json", "heliograph topic export --owner alice")
    )(c.with_connection(_export))


def read_bundle(path: Path) -> GrantBundle:
    """A grant file."""
    from heliograph.cli.files import read_file
    from heliograph.discovery.topics.bundle import decode_bundle
    from heliograph.errors import ProtocolError

    try:
        return decode_bundle(read_file(path, "the grant").decode("ascii", "replace"))
    except ProtocolError as error:
        raise UsageError(f"{path}: {error.detail}") from None


async def show_rights(client: Client, topics: list[str], files: list[Path] | None) -> None:
    """Before a command uses created topics: present the given grants, or show that a topic is our own."""
    for path in files or ():
        await client.use_topic(read_bundle(path))
    roots = {topic.split("/")[1]: None for topic in topics if topic.startswith("Topics/") and topic.count("/")}
    for uuid in roots if not files else ():
        found = await find(client, uuid)
        if found.advertisement.creator == client.entity:
            await client.use_topic(found)


def _grant(
    there: c.Connection,
    uuid: Uuid,
    holder: Annotated[str, typer.Argument(metavar="ENTITY", help="Who gets the right.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the grant.")],
    publish: Annotated[bool, typer.Option("--publish", help="It may publish.")] = False,
    subscribe: Annotated[bool, typer.Option("--subscribe", help="It may subscribe.")] = False,
    hidden: Annotated[bool, typer.Option("--hidden", help="It may use the topic, but not find it.")] = False,
    delegate: Annotated[bool, typer.Option("--delegate", help="It may grant what it has to others.")] = False,
    lifetime: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 90s, 15m, 12h, 30d.")] = "1d",
    using: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The grant that lets you delegate, if the topic is not yours.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Grant an entity rights to a topic, as a file for it."""
    from heliograph.cli.files import refuse_existing, write_file
    from heliograph.discovery.topics.bundle import encode_bundle
    from heliograph.discovery.topics.grants import glance_grant

    if not force:
        refuse_existing(out)
    parent = read_bundle(using) if using is not None else None

    async def work() -> None:
        async with c.connected(there, name="heliograph topic") as client:
            bundle = client.grant_topic(
                await find(client, uuid),
                holder,
                publish=publish,
                subscribe=subscribe,
                discover=not hidden,
                delegate=delegate,
                lifetime=seconds_of(lifetime),
                using=parent,
            )
        write_file(out, f"{encode_bundle(bundle)}\n".encode(), force=force)
        told = _described(bundle)
        say(f"{out}: {told['allows']} on {uuid} for {holder}, until {told['expires']}; give it this file")
        granted_s = glance_grant(bundle.grants[-1]).expires_ms / 1_000 - time()
        if granted_s < seconds_of(lifetime) - CUT_S:
            say(f"the topic ends then, before the {lifetime} of --for; `heliograph topic renew` makes it last longer")

    c.run(work())


def _revoke(
    there: c.Connection,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Grants that you signed, or of your topics.")],
) -> None:
    """Revoke grants: at every broker, within seconds."""
    bundles = [read_bundle(path) for path in files]

    async def work() -> None:
        async with c.connected(there, name="heliograph topic") as client:
            await client.revoke_grants(*bundles)
        say(f"revoked: {', '.join(map(str, files))}")

    c.run(work())


def _grants(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Grant files.")], as_json: AsJson = False
) -> None:
    """Show what grant files allow. Nothing is verified."""
    rows = [{"file": str(path), **_described(read_bundle(path))} for path in files]
    show(rows, as_json, ("file", "topic", "holder", "allows", "expires"))


def _described(bundle: GrantBundle) -> dict[str, Any]:
    from heliograph.discovery.topics.grants import glance_grant
    from heliograph.discovery.topics.listing import uuid_text

    last = glance_grant(bundle.grants[-1])
    return {
        "topic": uuid_text(last.topic),
        "holder": last.holder,
        "allows": ", ".join(last.verbs),
        "expires": time_of(last.expires_ms),
        "depth": len(bundle.grants),
    }


def _export(
    there: c.Connection,
    owner: Annotated[str, typer.Option(help="Topics of this entity.")] = "",
    space: Annotated[str, typer.Option(help="Topics of this topic space, or below it.")] = "",
    count: Annotated[int, typer.Option(help="At most this many.", min=1, max=10_000)] = 1_000,
) -> None:
    """Print the topics that you may discover as an AsyncAPI 3 document."""

    async def work() -> None:
        async with c.connected(there, name="heliograph topic") as client:
            found = [one async for one in client.discover_topics(owner=owner, space=space, count=count)]
            show(document_of(client.address, client.network, [plain(one.advertisement) for one in found]), True)

    c.run(work())


def document_of(address: str, network: str, topics: list[dict[str, Any]]) -> dict[str, Any]:
    """An AsyncAPI 3 document: one channel for each topic."""
    scheme, _, host = address.partition("://")
    return {
        "asyncapi": "3.0.0",
        "info": {"title": network or "Heliograph topics", "version": "1"},
        "defaultContentType": "application/octet-stream",
        "servers": {"broker": {"host": host, "protocol": scheme}},
        "channels": {
            topic["uuid"]: {
                "address": topic["topic"],
                "title": topic["path"] or topic["uuid"],
                "description": topic["text"],
                "tags": [{"name": word} for word in topic["keywords"]],
                "messages": {"event": {"payload": {}}},
                "x-owner": topic["owner"],
                "x-expires": topic["expires"],
                "x-properties": topic["properties"],
            }
            for topic in topics
        },
        "operations": {
            f"receive-{topic['uuid']}": {"action": "receive", "channel": {"$ref": f"#/channels/{topic['uuid']}"}}
            for topic in topics
        },
    }
