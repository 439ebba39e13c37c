"""start: how long a broker takes to be there and to be gone, and what it weighs.

In:    the systems that are installed.
Out:   ms from exec to the open port and to the first finished handshake, MiB when ready, ms from SIGTERM to the end;
       the time of ``heliograph --help``.
State: none.
Not here: anything under load (route.py).
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.field import Field, say
from benchmarks.figures import budget, budget_lines, medians, ratios, spread, table, values
from benchmarks.generator import RunError
from benchmarks.peers import OURS, SYSTEMS
from benchmarks.peers.server import Server, plain_environment

SAYS = "exec to ready, memory, SIGTERM to end, and the time of `heliograph --help`"
CASE = "start"
FIGURES = ("port_open_ms", "ready_ms", "rss_mib", "stop_ms")
HELP = "help"
HELP_REPEATS = 10


def run(quick: bool, *, systems: Sequence[str] | None = None) -> dict[str, Any]:
    """Start and stop everyone in turns."""
    field, facts = Field(systems), machine.facts()
    facts["pinned"] = "no process is bound to a core"
    rounds: list[dict[str, Any]] = []
    for number in range(1, (7 if quick else 25) + 1):
        say(f"round {number}")
        for name in field.turn(field.present, number):
            rounds.append({"round": number, "case": CASE, "system": name, **_start(name)})
    if OURS in field.present:
        rounds += [
            {"round": number, "case": HELP, "system": OURS, "help_ms": _help()} for number in range(1, HELP_REPEATS + 1)
        ]
    return _result(field, rounds) | {"quick": quick, "machine": facts}


def _start(name: str) -> dict[str, Any]:
    with Server(SYSTEMS[name], machine.cores()) as server:
        rss = machine.rss_mib(server.pids)
    if name == OURS and server.stop_code != 0:
        raise RunError(f"our broker ended with {server.stop_code} after SIGTERM")
    ms = {"port_open_ms": server.port_open_s, "ready_ms": server.ready_s, "stop_ms": server.stop_s}
    return {figure: seconds * 1e3 for figure, seconds in ms.items()} | {"rss_mib": rss}


def _help() -> float:
    script = Path(sys.executable).with_name("heliograph")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "heliograph.cli.main"]
    begin = time.perf_counter()
    done = subprocess.run([*command, "--help"], check=False, capture_output=True, env=plain_environment())
    if done.returncode:
        raise RunError(f"heliograph --help ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    return (time.perf_counter() - begin) * 1e3


def _result(field: Field, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    figures = {name: medians(rounds, name, CASE, FIGURES) for name in field.present}
    mine: dict[str, float] = figures.get(OURS, {})
    if mine:
        mine |= medians(rounds, OURS, HELP, ["help_ms"])
    compared = {figure: ratios(rounds, CASE, OURS, field.peers, figure) for figure in FIGURES}
    ours, peers = field.describe(figures)
    return {
        "name": "start",
        "unit": "ms from exec and from SIGTERM, MiB resident; medians",
        "ours": ours,
        "peers": peers,
        "ratios": {
            figure: {peer: entry["ratio"] for peer, entry in found.items()} for figure, found in compared.items()
        },
        "rounds": rounds,
        "spread": {
            figure: {name: spread([*values(rounds, name, CASE, figure).values()]) for name in field.present}
            for figure in FIGURES
        }
        | ({"help_ms": {OURS: spread([*values(rounds, OURS, HELP, "help_ms").values()])}} if mine else {}),
        "budget": [
            budget("ready", mine.get("ready_ms"), 500, "ms"),
            budget("memory when ready", mine.get("rss_mib"), 60, "MiB"),
            budget("stop", mine.get("stop_ms"), 100, "ms"),
            budget("heliograph --help", mine.get("help_ms"), 200, "ms"),
        ],
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows: list[list[object]] = []
    for name, system in {"ours": result["ours"], **result["peers"]}.items():
        if "absent" not in system:
            rows.append([name])
            for figure in FIGURES:
                rows[-1] += [system[figure], result["spread"][figure][name]]
    head = [
        "system",
        "port open ms",
        "[min, max]",
        "ready ms",
        "[min, max]",
        "RSS MiB",
        "[min, max]",
        "stop ms",
        "[min, max]",
    ]
    missing = [f"{name}: {peer['absent']}" for name, peer in result["peers"].items() if "absent" in peer]
    return "\n".join([table(head, rows), "", budget_lines(result), *missing])
