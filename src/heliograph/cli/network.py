"""`heliograph network`: start many brokers on this machine with one command, and show a network.

In:    a number of brokers or a topology file; an administrator's questions.
Out:   a running network; its map as tree, table, JSON or drawing; the path of a topic.
State: none here; a running network is identified by its folder (network_state.py).
Not here: starting processes (network_processes.py), merging and drawing reports (maps/), topology files (topology/).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.connection import Connection, ask, with_connection
from heliograph.cli.connection import run as run_work
from heliograph.cli.shape import examples, fail, group, say
from heliograph.errors import HeliographError, UsageError

if TYPE_CHECKING:
    from heliograph.cli.network_processes import NetworkProcesses
    from heliograph.cli.network_state import LocalBroker, LocalNetwork
    from heliograph.maps.network_view import NetworkView
    from heliograph.topology.process_network import NetworkTopology

app = group("Run many brokers on this machine, and look at a network.")

Folder = Annotated[
    Path | None, typer.Option("--dir", help="The folder of a local network. Default: in the runtime folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
MAP = {"do": "report", "question": "map"}
WATCH_S = 0.2
ADVICE_SHOWN_MAX = 50


@app.command(epilog=examples("heliograph network key network.key"))
def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write; only you can read it.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Make a network key, with which brokers authenticate each other."""
    from heliograph.cli.files import write_file
    from heliograph.cli.network_processes import new_key

    write_file(file, new_key(), force=force)
    say(f"{file}: give it to every broker of the network (network.key_file), and keep it secret")


@app.command(
    epilog=examples(
        "heliograph network up 9 --clusters 3",
        "heliograph network up 5 --detach --name plant --port-base 4801",
        "heliograph network up --topology plant.toml",
    )
)
def up(
    count: Annotated[int | None, typer.Argument(metavar="[N]", help="How many brokers.", min=1)] = None,
    clusters: Annotated[int, typer.Option(help="The number of clusters, of equal size.", min=1)] = 1,
    topology: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read brokers and links from this file.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The network's name. Default: made from its folder, unique on this machine.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when the network is up; it keeps running.")] = False,
    folder: Folder = None,
    port_base: Annotated[
        int | None, typer.Option(help="The first port; the next ones follow. Default: free ports.", min=1, max=65_535)
    ] = None,
    stores: Annotated[int, typer.Option(help="So many stores for all topics, each in its own process.", min=0)] = 0,
    no_bdn: Annotated[bool, typer.Option("--no-bdn", help="Without a broker directory.")] = False,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="With an authority, certificates and a topic directory, for trying topics."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start brokers and a directory on this machine, until Ctrl-C."""
    import signal

    from heliograph.cli.network_processes import NetworkProcesses
    from heliograph.cli.network_state import STORES, default_folder
    from heliograph.model.identity import NETWORK_RULE, network_is_valid

    if name is not None and not network_is_valid(name):
        raise UsageError(f"--name {name!r} is not the name of a network: {NETWORK_RULE}")
    graph = _topology(count, clusters, topology)
    if stores:
        graph = graph.with_stores(stores)
    if port_base is not None:
        graph = graph.with_ports(port_base)
    pieces = graph.parts()
    if len(pieces) > 1:
        say(f"the links leave {len(pieces)} parts that do not reach each other: {_first_of(pieces)}")
    where = folder.absolute() if folder is not None else default_folder()
    after = 0 if port_base is None else port_base + len(graph.brokers)
    network = NetworkProcesses(
        graph, where, name=name or "", bdn=not no_bdn, bdn_port=after if after < 65_536 else 0, secure=secure
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # a signal that ends this process ends the brokers too
    stands = False
    try:
        run_work(network.start(say))
        stands = True
        for directory in network.directories:
            say(f"directory {directory.name} knows them: `heliograph bdn list --at {directory.address}`")
        if stores:
            say(f"what the stores keep is in {where / STORES} and stays there")
        _show_brokers(network, as_json)
        say(f"this is network {network.name}: reach it by --network {network.name}, in a program by")
        say(f'heliograph.connect(network="{network.name}"), or set HELIOGRAPH_NETWORK={network.name} for both')
        if secure:
            _say_who(network.folder, network.secure_url)
        if detach:
            say(f"the network keeps running; `heliograph network down{_dir(folder)}` stops it")
            return
        _watch(network)
    except KeyboardInterrupt:
        if not stands:
            network.stop(keep_logs=True)
            raise
    network.stop(keep_logs=False)
    say("stopped")


def _say_who(folder: Path, url: str) -> None:
    """Say how to act as alice or bob."""
    from heliograph.cli.network_secure import PEOPLE, environment

    say(f"to be {PEOPLE[0]} (or {PEOPLE[1]}, or admin) in this shell:")
    for name, value in environment(folder, url, PEOPLE[0]).items():
        say(f"  export {name}={value}")


@app.command(epilog=examples("heliograph network down"))
def down(folder: Folder = None) -> None:
    """Stop a network that `network up` started."""
    from heliograph.cli import network_state as state
    from heliograph.cli.network_processes import end
    from heliograph.live.remembered_file import forget

    where, network = _local(folder)
    if network is None:
        raise HeliographError(f"no network was started in {where}; `heliograph network up` starts one")
    found = state.processes(where, network)
    running = sum(1 for broker in network.brokers if broker.name in found)
    made = end(found.values())
    forget([broker.address for broker in network.brokers])
    state.clear(where, [each.name for each in network.parts], keep_logs=False)
    told = [f"{running} of {len(network.brokers)} brokers were running and are stopped"]
    if made:
        told.append(f"{made} of them had to be killed")
    say("; ".join(told))


@app.command(
    name="map",
    epilog=examples(
        "heliograph network map", "heliograph network map --svg map.svg", "heliograph network map --url b.example.org"
    ),
)
@with_connection
def show_map(
    there: Connection,
    folder: Folder = None,
    as_json: AsJson = False,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it into this file.")] = None,
) -> None:
    """Show brokers, clusters and links."""
    from heliograph.maps.network_view import merged
    from heliograph.maps.text import as_text

    where, network = _asked(there, folder)
    view = merged([ask(there, MAP)]) if network is None else _local_view(where, network)
    if svg is not None:
        from heliograph.maps.svg import draw

        svg.write_text(draw(view), "utf-8")
        say(f"{svg}: {len(view.brokers)} brokers drawn")
    if as_json:
        import json

        print(json.dumps(view.as_json()))
    elif svg is None:
        for line in as_text(view):
            print(line)


@app.command(
    epilog=examples(
        "heliograph network trace plant/7/temperature",
        "heliograph network trace plant/7 --at b2",
        "heliograph network trace hosts/h1 --header disk=200 --header system=linux",
    )
)
@with_connection
def trace(
    there: Connection,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of a publication.")],
    at: Annotated[
        str | None, typer.Option(metavar="BROKER", help="The broker of a local network where it enters.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option("--header", help="A header, key=value; can be repeated.")] = None,
    payload: Annotated[str, typer.Option(help="The payload, for subscriptions with a condition on it (XPath).")] = "",
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Show where a publication would go and why, without delivering it."""
    import json
    from dataclasses import replace

    from heliograph.cli.network_state import running
    from heliograph.cli.payload import header as parse_header
    from heliograph.maps.trace import as_text

    where, network = _asked(there, folder)
    if network is not None:
        brokers = {broker.name: broker for broker in running(where, network)}
        if not brokers:
            raise HeliographError(
                f"no broker of the network in {where} runs; `heliograph network down{_dir(folder)}` clears up"
            )
        if at is not None and at not in brokers:
            raise UsageError(f"--at {at!r}: no such broker runs in {where}; there is {', '.join(brokers)}")
        there = replace(there, url=brokers[at or next(iter(brokers))].url)
    elif at is not None:
        raise UsageError("--at names a broker of a local network; give --url instead")
    headers = dict(parse_header(text) for text in header or [])
    answer = ask(there, {"do": "trace", "topic": topic, "headers": headers, "payload": payload})
    if as_json:
        print(json.dumps(answer))
        return
    for line in as_text(answer):
        print(line)


@app.command(epilog=examples("heliograph network advice"))
@with_connection
def advice(there: Connection, as_json: AsJson = False) -> None:
    """Show the data pipeline's advice, from the stores that keep it."""
    import json

    from heliograph.cli.connection import connected
    from heliograph.cli.tables import show

    found: list[dict[str, Any]] = []

    async def work() -> None:
        async with (
            connected(there, name="heliograph network advice", as_admin=True) as client,
            client.replay("System/Advice/#") as replay,
        ):
            async for publication in replay:
                try:
                    row = json.loads(publication.payload)
                    found.append({name: row.get(name) for name in ("time_us", "kind", "about", "text", "value")})
                except (ValueError, AttributeError):
                    continue  # another party's publication

    run_work(work())
    show(found[-ADVICE_SHOWN_MAX:] or ([] if as_json else "none"), as_json)


def _topology(count: int | None, clusters: int, file: Path | None) -> NetworkTopology:
    from heliograph.cli.files import read_file
    from heliograph.errors import ConfigError
    from heliograph.topology.process_network import generated, read_topology

    if count is not None and file is not None:
        raise UsageError(f"give a number of brokers ({count}) or a topology file ({file}), not both")
    if count is None and file is None:
        raise UsageError("give a number of brokers, or name a topology file, such as: network up 5")
    if file is not None:
        if clusters != 1:
            raise UsageError("--clusters goes with a number of brokers; a topology file names the clusters itself")
        try:
            return read_topology(read_file(file, "the topology file").decode(errors="replace"))
        except ConfigError as error:
            raise ConfigError([f"{file}: {problem}" for problem in error.problems]) from None
    assert count is not None
    if clusters > count:
        raise UsageError(f"{count} brokers cannot make {clusters} clusters")
    return generated(count, clusters)


def _show_brokers(network: NetworkProcesses, as_json: bool) -> None:
    from heliograph.cli.tables import show

    rows: list[dict[str, Any]] = [
        {
            "name": broker.name,
            "cluster": broker.cluster,
            "slot": broker.slot,
            "address": broker.address,
            "pid": broker.pid,
        }
        for broker in network.brokers
    ]
    show(rows, as_json)
    print(end="", flush=True)  # a program that reads this through a pipe waits for it


def _watch(network: NetworkProcesses) -> None:
    """Wait for Ctrl-C, or until all brokers have ended."""
    import time

    say("the network is running; Ctrl-C stops it")
    gone: dict[str, int] = {}
    names = [broker.name for broker in network.brokers]
    while not set(names) <= set(gone):
        time.sleep(WATCH_S)
        ended = network.ended()
        left = sum(name not in ended for name in names)
        for name in [name for name in ended if name not in gone]:
            how = f"signal {-ended[name]}" if ended[name] < 0 else f"code {ended[name]}"
            what = "broker" if name in names else "directory"
            say(f"{what} {name} ended ({how}); {left} brokers are left")
        gone = ended


def _local(folder: Path | None) -> tuple[Path, LocalNetwork | None]:
    from heliograph.cli import network_state as state

    where = folder.absolute() if folder is not None else state.default_folder()
    return where, state.load(where)


def _asked(there: Connection, folder: Path | None) -> tuple[Path, LocalNetwork | None]:
    """The local network to query: that of the folder; without folder and address, the default one, if it runs."""
    if folder is None and (there.url is not None or there.discover):
        return Path(), None
    where, network = _local(folder)
    if folder is None and network is not None and there.network not in (None, network.name):
        return Path(), None
    if folder is not None and network is None:
        raise HeliographError(f"no network was started in {where}; `heliograph network up` starts one")
    return where, network


def _local_view(where: Path, network: LocalNetwork) -> NetworkView:
    """All brokers of a local network, queried at the same time."""
    import asyncio

    from heliograph.cli.network_processes import administrating, listens
    from heliograph.cli.network_state import processes
    from heliograph.maps.network_view import RUNNING, SILENT, SeenBroker, SeenDirectory, merged

    reports: dict[str, dict[str, Any]] = {}

    async def ask_one(broker: LocalBroker) -> None:
        if not await listens(broker.port):  # not by its process, as it may have been restarted by hand
            return
        try:
            async with administrating(broker.url) as client:
                report = await client.ask("admin", MAP)
        except HeliographError:
            return  # shown as not answering
        if report["broker"] == broker.name:  # its port may belong to another broker by now
            reports[broker.name] = report

    async def ask_all() -> None:
        await asyncio.gather(*(ask_one(broker) for broker in network.brokers))

    run_work(ask_all())
    if not reports:
        fail(f"no broker of the network in {where} answers; `heliograph network down --dir {where}` clears up")
    silent = [
        SeenBroker(broker.name, broker.cluster, broker.slot, state=SILENT)
        for broker in network.brokers
        if broker.name not in reports
    ]
    view = merged([reports[name] for name in sorted(reports)], silent)
    pids = {name: process.pid for name, process in processes(where, network).items()}  # the current ones
    for broker in network.brokers:
        view.brokers[broker.name].locate(broker.address, pids.get(broker.name))
    for directory in network.directories:
        pid = pids.get(directory.name)
        state = SILENT if pid is None else RUNNING
        view.directories.append(SeenDirectory(directory.name, directory.address, pid, state))
    return view


def _dir(folder: Path | None) -> str:
    return "" if folder is None else f" --dir {folder}"


def _first_of(pieces: list[list[str]]) -> str:
    return "; ".join(", ".join(piece[:3]) + (" …" if len(piece) > 3 else "") for piece in pieces[:4])
