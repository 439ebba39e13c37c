"""`heliograph store`: run a store, or inspect the stores of a network and the vault of a stopped one.

In:    settings, with this command's options on top; a user's queries.
Out:   a store until a signal ends it; stores, their logs and subscriptions as a table or as JSON.
State: none.
Not here: the store (stores/), running it (live/node.py), publishing and reading (publish.py, subscribe.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.broker_run import host_and_port, link_options, run_with
from heliograph.cli.config import Chosen
from heliograph.cli.connection import Connection, connected, with_connection
from heliograph.cli.connection import run as run_work
from heliograph.cli.node_options import (
    Authority,
    Given,
    KeptLinks,
    Key,
    LogFormat,
    LogLevel,
    NetworkKey,
    Tokens,
    identity_settings,
    log_settings,
    refuse_password,
)
from heliograph.cli.shape import examples, fail, group, say
from heliograph.cli.tables import show as show_table
from heliograph.errors import HeliographError, UsageError

if TYPE_CHECKING:
    from heliograph.live.client import Client
    from heliograph.live.vaults.backend import Backend

app = group("Run a store, or look at stores.")
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
StoreName = Annotated[str, typer.Argument(metavar="NAME", help="The store's name.")]
Place = Annotated[str, typer.Option(metavar="FOLDER", help="Where its vault is: a folder, or postgresql://…")]
PLACE = "heliograph-stores"
COLUMNS = ("name", "store", "patterns", "state", "first", "next", "broker")


@app.command(
    epilog=examples(
        "heliograph store run --pattern 'orders/#' --network-key-file network.key --link 127.0.0.1:4717",
        "heliograph store run --name bills --pattern 'bills/#' --place /var/lib/heliograph --join "
        "--network-key-file network.key",
    )
)
def run(
    config: Chosen = None,
    name: Annotated[str | None, typer.Option(help="The store's name, and that of its broker.")] = None,
    pattern: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="Serve these topics; can be repeated. Default: all.")
    ] = None,
    place: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where to keep it: a folder, or postgresql://…")
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="For bulk readers; port 0 takes a free one.")
    ] = "127.0.0.1:0",
    link: KeptLinks = None,
    join: Annotated[bool, typer.Option("--join", help="Find a broker and link to it.")] = False,
    network: Annotated[str | None, typer.Option(help="The name of the network.")] = None,
    cluster: Annotated[str | None, typer.Option(help="The cluster to which it belongs.")] = None,
    network_key_file: NetworkKey = None,
    secure: Annotated[bool, typer.Option("--secure", help="Speak TLS; needs --certificate and --key.")] = False,
    auth: Annotated[str | None, typer.Option(help="What bulk readers must show.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="Its certificate, with the roles broker and store.")] = None,
    key: Key = None,
    authority: Authority = None,
    tokens: Tokens = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Run a store in its own process until Ctrl-C. It is a broker with a store, linked into the network."""
    host, port = host_and_port(listen)
    given: tuple[Given, ...] = (
        ("store.enabled", "true", "store run"),
        ("store.name", name, "--name"),
        ("broker.name", name or "store", "--name"),
        ("store.patterns", ",".join(pattern) if pattern else None, "--pattern"),
        ("store.place", place, "--place"),
        ("listener.host", host, "--listen"),
        ("listener.port", port, "--listen"),
        ("listener.secure", "true" if secure else None, "--secure"),
        ("listener.auth", auth, "--auth"),
        *identity_settings(certificate, key, authority),
        ("tokens.file", tokens, "--tokens"),
        ("network.name", network, "--network"),
        ("network.cluster", cluster, "--cluster"),
        ("network.key_file", network_key_file, "--network-key-file"),
        ("network.join", "true" if join else None, "--join"),
        *link_options(link or []),
        *log_settings(log_level, log_format),
    )
    run_with(config, given)


@app.command(name="list", epilog=examples("heliograph store list", "heliograph store list --topic orders/7 --json"))
@with_connection
def list_stores(
    there: Connection,
    topic: Annotated[str, typer.Option(help="Those that serve this topic; publishers use the first.")] = "",
    as_json: AsJson = False,
) -> None:
    """List the stores of a network, and those that were there within the last hour (away: publishers wait for them)."""
    found = _ask(there, {"do": "find", "topic": topic})
    rows = [{"state": "open", "first": 0, "next": 0, **store} for store in found["stores"]]
    rows += [{"first": 0, "next": 0, **store, "state": "away"} for store in found.get("away", [])]
    if as_json:
        show_table(rows, as_json)
    elif rows:
        show_table([{**row, "patterns": ", ".join(row["patterns"])} for row in rows], as_json, COLUMNS)
    else:
        say("no store serves this topic" if topic else "this network has no store; `heliograph store run` starts one")


@app.command(epilog=examples("heliograph store show orders"))
@with_connection
def show(there: Connection, name: StoreName, as_json: AsJson = False) -> None:
    """Show what a store holds and does, and its durable subscriptions."""
    found: dict[str, Any] = {}

    async def work() -> None:
        async with connected(there, name="heliograph store", as_admin=True) as client:
            stores = (await client.ask("stores", {"do": "find"}))["stores"]
            matching = [store for store in stores if name in (store["name"], store["store"])]
            if not matching:
                raise HeliographError(f"no store {name!r}; `heliograph store list` lists them")
            id = matching[0]["store"]
            answer = await client.ask("stores", {"do": "logs", "store": id})
            names: list[Any] = []
            after = ""
            while True:
                page = await client.ask("stores", {"do": "names", "store": id, "after": after})
                names.extend(page["names"])
                if not page.get("more"):
                    break
                after = f"{names[-1]['entity']}/{names[-1]['name']}"
            found.update({**matching[0], "logs": answer["logs"], **answer.get("counts", {}), "subscriptions": names})

    run_work(work())
    if as_json:
        show_table(found, as_json)
        return
    subscriptions = found.pop("subscriptions")
    log = found.pop("logs")[0]
    show_table({**found, "patterns": ", ".join(found["patterns"]), "bytes": log["bytes"]}, as_json)
    if subscriptions:
        print("\ndurable subscriptions")
        show_table(subscriptions, as_json)


@app.command(epilog=examples("heliograph store batches orders", "heliograph store batches orders --json"))
@with_connection
def batches(there: Connection, name: StoreName, as_json: AsJson = False) -> None:
    """List the batches that are staged at a store and not committed, with the bytes that they count for."""
    rows: list[dict[str, Any]] = []

    async def work() -> None:
        async with connected(there, name="heliograph store", as_admin=True) as client:
            id = await _id_of(client, name)
            after = ""
            while True:
                page = await client.ask("stores", {"do": "batches", "store": id, "after": after})
                rows.extend(page["batches"])
                if not page.get("more"):
                    break
                after = "{entity}/{publisher}/{batch:020d}".format(**rows[-1])

    run_work(work())
    if rows or as_json:
        show_table([{"sources": [], **row} for row in rows], as_json)
    else:
        say(f"{name}: nothing is staged")


@app.command(
    name="drop-batch", epilog=examples("heliograph store drop-batch orders nightly-job 20260301 --of anonymous")
)
@with_connection
def drop_batch(
    there: Connection,
    name: StoreName,
    publisher: Annotated[str, typer.Argument(help="The publisher of the batch.")],
    batch: Annotated[int, typer.Argument(help="Its number.")],
    of: Annotated[str, typer.Option("--of", metavar="ENTITY", help="Whose it is. Default: your own.")] = "",
) -> None:
    """Forget what is staged for a batch that is not committed."""

    async def work() -> None:
        async with connected(there, name="heliograph store", as_admin=True) as client:
            request = {"do": "drop_batch", "store": await _id_of(client, name), "publisher": publisher, "batch": batch}
            await client.ask("stores", {**request, "entity": of})

    run_work(work())
    say(f"{publisher} {batch}: dropped")


async def _id_of(client: Client, name: str) -> str:
    """The id of a store that has this name or id."""
    stores = (await client.ask("stores", {"do": "find"}))["stores"]
    for store in stores:
        if name in (store["name"], store["store"]):
            return str(store["store"])
    raise HeliographError(f"no store {name!r}; `heliograph store list` lists them")


@app.command(epilog=examples("heliograph store forget orders"))
@with_connection
def forget(there: Connection, name: StoreName) -> None:
    """Say that a store that is away will not come back, so that publishers of its topics no longer wait for it."""

    async def work() -> None:
        async with connected(there, name="heliograph store", as_admin=True) as client:
            await client.forget_store(name)

    run_work(work())
    say(f"{name}: forgotten")


@app.command(epilog=examples("heliograph store verify orders", "heliograph store verify orders --place /var/lib/h"))
def verify(name: StoreName, place: Place = PLACE, as_json: AsJson = False) -> None:
    """Read everything in the vault of a store that is stopped, and say what cannot be read."""
    from heliograph.vault import Damage, Read, ReadKeys, ReadLogs

    backend = _vault(name, place)
    try:
        problems = list(backend.check())
        logs, keys, records, after = 0, 0, 0, None
        while True:
            page: Any = backend.read(ReadLogs("", after))
            for log in page.logs:
                logs += 1
                at = log.first
                while at < log.next:
                    found: Any = backend.read(Read(log.name, at))
                    for run in found.runs:
                        if isinstance(run, Damage):
                            problems.append(f"{log.name}: positions {run.position} to {run.next - 1}: {run.problem}")
                        else:
                            records += run.count
                        at = run.next
                    if not found.runs:
                        break
            if not page.more:
                break
            after = page.logs[-1].name
        after = None
        while True:
            page = backend.read(ReadKeys("", after))
            keys += len(page.pairs)
            problems += [f"key {key}: its value is damaged" for key, value in page.pairs if value is None]
            if not page.more:
                break
            after = page.pairs[-1][0]
    finally:
        backend.close()
    show_table({"logs": logs, "records": records, "keys": keys, "problems": problems}, as_json)
    if problems:
        fail(f"{name}: {len(problems)} problems")


@app.command(epilog=examples("heliograph store compact orders"))
def compact(name: StoreName, place: Place = PLACE) -> None:
    """Give unused space of a stopped store's vault back to the system."""
    backend = _vault(name, place)
    try:
        backend.compact()
    finally:
        backend.close()
    say(f"{name}: compacted")


def _vault(name: str, place: str) -> Backend:
    """The opened vault of a store; it must exist."""
    from heliograph.live.vaults.choice import make_backend
    from heliograph.model.places import POSTGRES
    from heliograph.vault import NAME, Vault

    refuse_password(place, "--place")
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not the name of a store: letters, digits, - and _, at most 40")
    if not place.startswith(POSTGRES) and not list(Path(place).glob(f"{name}.*")):
        raise HeliographError(f"no vault of a store {name!r} in {place}; name another folder with --place")
    backend = make_backend(Vault(name=name, place=place))
    backend.open()
    return backend


def _ask(there: Connection, request: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def work() -> None:
        async with connected(there, name="heliograph store") as client:
            found.update(await client.ask("stores", request))

    run_work(work())
    return found
