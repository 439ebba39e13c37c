"""Runs of the archive on live networks with stores, killed at any moment, while brokers and stores have faults too.

In:    a seed and a folder.
Out:   a Kept: what was acknowledged, and what is lost, twice or wrong in the stores, in the table ``events``, or in a
       table of payloads of 20 bytes and the quarantine of all others.
State: the processes of one network and of one archive at a time.
Not here: the network (store_runs.py), the publishers (store_clients.py), crashes at chosen points (tests/pipeline).

The table is read by delta-rs and pyarrow, and compared with the logs as a client of the protocol reads them.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.independent.network import COMMAND
from tests.independent.store_clients import Publisher, whole_log
from tests.independent.store_oracle import Kept, Log, judge
from tests.independent.store_runs import STORES, Nodes, running, settled
from tests.wire.stdlib_client import HEAD

TOPICS = (["x/1", "x/2"], ["y/1"], ["x/1", "y/1", "y/2"])
COUNT = 300  # publications of each publisher; there are new ones in each round
FILES = (
    "*/_delta_log/*.json",
    "*/data/*",
    "_checkpoint/offsets/*",
    "_checkpoint/commits/*",
)  # that time a kill
PATIENCE_S = 40.0  # for such a file
LOOK_S = 0.003
TWENTY = 20  # bytes of a payload that fits the schema; publishers draw 0, 20, 300 or 5,000
NAMED_SHARE = 0.6  # of the runs that are killed: in the others there is no table of payloads
END_S = 300.0  # of an archive that is not killed


class Row(NamedTuple):
    """A row of the table."""

    store: str
    position: int
    topic: str
    value: bytes
    headers: str
    origin: str
    sequence: int


Value = tuple[str, int, bytes]
"""Store, position, payload."""


def with_archive(seed: int, folder: Path, *, rounds: int = 5) -> Kept:
    """Publish and archive in rounds, each of which ends with a kill; then archive the rest, and compare."""
    with running(seed, folder) as nodes:
        return asyncio.run(_play(seed, nodes, folder, rounds))


async def _play(seed: int, nodes: Nodes, folder: Path, rounds: int) -> Kept:
    draw = Random(f"archive {seed}")
    await nodes.ready()
    ports = [node.port for node in nodes.nodes.values()]
    url = f"heliograph://127.0.0.1:{ports[0]}"
    (folder / "twenty.avsc").write_text('{"type": "fixed", "name": "Twenty", "size": 20}')
    archive = ["archive", "--tables", "tables", "--filter", "x/#,y/#", "--url", url]
    naming = ["--table", "twenty=x/#:avro", "--schema", "twenty=twenty.avsc"]
    named = Random(f"named {seed}")
    publishers: list[Publisher] = []
    problems: list[str] = []
    kills = 0
    for number in range(rounds):
        some = [Publisher(f"p{number}.{each} {seed}", ports, topics, COUNT) for each, topics in enumerate(TOPICS)]
        publishers += some
        writing = [asyncio.create_task(publisher.run()) for publisher in some]
        following = ["--follow", "--every", "1"] if draw.random() < 0.6 else []
        naming_now = naming if named.random() < NAMED_SHARE else []
        killing = asyncio.create_task(_kill(folder, [*archive, *following, *naming_now], draw))
        if draw.random() < 0.5:
            await asyncio.sleep(draw.uniform(0, 15))
            await nodes.fault(draw)
            await nodes.ready()
        kills += await killing
        if not await settled(some, [], writing):
            problems.append("not everything was acknowledged in time")
        if draw.random() < 0.3 and _count(folder, FILES[0]):
            problems += await _finish(folder, ["compact", "--tables", "tables"])
    problems += await _finish(folder, [*archive, *naming])
    logs = [
        dict([await whole_log(port, f"{store}/1") for store in STORES])
        for port in (ports[0], nodes.nodes[STORES[0]].port)
    ]
    kept = judge(publishers, [], logs, [])
    rows = rows_of(folder / "tables" / "events")
    judge_archive(kept, rows, logs[0])
    judge_payloads(kept, rows, *(values_of(folder / "tables" / name) for name in ("twenty", "quarantine")))
    kept.problems += problems
    kept.faults = kills
    return kept


async def _kill(folder: Path, command: list[str], draw: Random) -> bool:
    """Start a command, and kill it some time after files of some kind were written. False if it ended before."""
    pattern, wanted = draw.choice(FILES), draw.randint(1, 4)
    before = _count(folder, pattern)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (draw.uniform(5, 30) if draw.random() < 0.2 else PATIENCE_S)
    process = await _start(folder, command)
    while process.returncode is None and loop.time() < deadline and _count(folder, pattern) < before + wanted:
        await asyncio.sleep(LOOK_S)
    await asyncio.sleep(draw.choice((0.0, draw.uniform(0, 0.2))))
    if process.returncode is not None:
        return False
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    return True


async def _finish(folder: Path, command: list[str]) -> list[str]:
    """Run a command to its end; what is wrong with that."""
    process = await _start(folder, command)
    async with asyncio.timeout(END_S):
        _, told = await process.communicate()
    return [] if process.returncode == 0 else [f"{command[0]} ended with {process.returncode}: {told[-500:]!r}"]


async def _start(folder: Path, command: list[str]) -> asyncio.subprocess.Process:
    """A process in a group of its own, which Java is in too."""
    return await asyncio.create_subprocess_exec(
        *(COMMAND, "pipeline", *command),
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


def _count(folder: Path, pattern: str) -> int:
    return sum(1 for _ in (folder / "tables").glob(pattern))


def rows_of(table: Path) -> list[Row]:
    """All rows of the table of events."""
    from deltalake import DeltaTable

    columns = ["store", "offset", "topic", "value", "headers", "origin", "sequence"]
    found = DeltaTable(str(table)).to_pyarrow_table(columns=columns)
    return [Row(*row) for row in zip(*(found[name].to_pylist() for name in columns), strict=True)]


def judge_archive(kept: Kept, rows: Iterable[Row], logs: Mapping[str, Log]) -> None:
    """Every publication of every log is a row, once, and there is no other row."""
    expected = {(store, place): _row(store, place, raw) for store, log in logs.items() for place, raw in log}
    times: Counter[tuple[str, int]] = Counter()
    for row in rows:
        place = row.store, row.position
        times[place] += 1
        if place not in expected:
            kept.problems.append(f"no log has the row at {place}")
        elif row != expected[place]:
            kept.problems.append(f"the row at {place} is {row}, in the log {expected[place]}")
    kept.lost += sum(place not in times for place in expected)
    kept.twice += sum(count - 1 for count in times.values())


def values_of(table: Path) -> list[Value]:
    """The payloads of a table, each with its place."""
    from deltalake import DeltaTable

    found = DeltaTable(str(table)).to_pyarrow_table(columns=["store", "offset", "value"])
    return list(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))


def judge_payloads(kept: Kept, events: Iterable[Row], fitting: Iterable[Value], others: Iterable[Value]) -> None:
    """Every event below x is once in the table of payloads of 20 bytes or, if it has another length, apart."""
    values = [(row.store, row.position, row.value) for row in events if row.topic.startswith("x/")]
    for name, found, wanted in (
        ("twenty", Counter(fitting), Counter(value for value in values if len(value[2]) == TWENTY)),
        ("quarantine", Counter(others), Counter(value for value in values if len(value[2]) != TWENTY)),
    ):
        for what, wrong in (("lacks", wanted - found), ("has too many of", found - wanted)):
            kept.problems += [f"{name} {what} {place[:2]}: {count}" for place, count in wrong.items()]


def _row(store: str, place: int, raw: bytes) -> Row:
    _, _, _, topic_length, origin, sequence, header_length = HEAD.unpack_from(raw)
    headers = HEAD.size + topic_length
    payload = headers + header_length
    return Row(
        *(store, place, raw[HEAD.size : headers].decode(), raw[payload:]),
        *(raw[headers:payload].decode(), f"{origin:016x}", sequence),
    )
