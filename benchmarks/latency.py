"""latency: one message at a time through one broker, everything on one core.

In:    the systems that are installed.
Out:   p50 and p99 of publish to receive, 64 B, by system, with ratios and the budget.
State: none.
Not here: latency under load or over several brokers.

On two cores the wake-up of a sleeping core dominates and comes in two sizes, so such figures cannot be ranked: here
publisher, broker and subscriber share one. A round is the best of three series, the one with the fewest disturbances.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks import machine
from benchmarks.field import Field, say, serve
from benchmarks.figures import budget, budget_lines, medians, ratios, spread, table, values
from benchmarks.generator import Generator
from benchmarks.peers import OURS
from benchmarks.peers.server import Server

SAYS = "64 B ping-pong, one core, p50 and p99; against nats, mosquitto, redis"
CASE = "pingpong"
SERIES, MESSAGES, WARM = 3, 5_000, 500
PAYLOAD_BYTES = 64
FIGURES = ("p50_us", "p99_us", "cpu_us")


def run(quick: bool, *, systems: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure everyone in turns."""
    field, facts = Field(systems), machine.facts()
    rounds_max = 5 if quick else 15
    core = {machine.cores()[0]}
    facts["pinned"] = f"publisher, broker and subscriber on core {min(core)}, for all systems alike"
    rounds = []
    with ExitStack() as stack:
        generator = stack.enter_context(Generator(core))
        servers = {name: serve(stack, generator, name, core, None) for name in field.present}
        for number in range(1, rounds_max + 1):
            say(f"round {number} of {rounds_max}")
            for name in field.turn(field.present, number):
                rounds.append({"round": number, "case": CASE, "system": name, **_best(generator, servers[name])})
    return _result(field, rounds) | {"quick": quick, "machine": facts}


def _best(generator: Generator, server: Server) -> dict[str, Any]:
    server.check_running()
    series = [
        generator.ask(
            "pingpong",
            system=server.system.name,
            port=server.port,
            ca_file=server.ca_file,
            payload_bytes=PAYLOAD_BYTES,
            messages=MESSAGES,
            warm=WARM,
            pids=server.pids,
        )
        for _ in range(SERIES)
    ]
    return min(series, key=lambda figures: float(figures["p50_us"]))


def _result(field: Field, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    figures = {name: medians(rounds, name, CASE, FIGURES) for name in field.present}
    compared = ratios(rounds, CASE, OURS, field.peers, "p50_us")
    ours, peers = field.describe(figures)
    return {
        "name": "latency",
        "unit": f"µs from publish to receive, {PAYLOAD_BYTES} B, one at a time; best of {SERIES} x {MESSAGES} a round",
        "ours": ours,
        "peers": peers,
        "ratios": {peer: entry["ratio"] for peer, entry in compared.items()},
        "rounds": rounds,
        "spread": {
            "p50_us": {name: spread([*values(rounds, name, CASE, "p50_us").values()]) for name in field.present},
            "ratios": {peer: entry["spread"] for peer, entry in compared.items()},
        },
        "budget": [budget("p50, ours by nats", compared.get("nats", {}).get("ratio"), 1.0, "x nats")],
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows = [
        [
            name,
            system["p50_us"],
            result["spread"]["p50_us"][name],
            system["p99_us"],
            system["cpu_us"],
            result["ratios"].get(name),
        ]
        for name, system in {"ours": result["ours"], **result["peers"]}.items()
        if "absent" not in system
    ]
    head = ["system", "p50 µs", "[min, max]", "p99 µs", "broker CPU-µs", "ours by it"]
    missing = [f"{name}: {peer['absent']}" for name, peer in result["peers"].items() if "absent" in peer]
    return "\n".join([table(head, rows), "", budget_lines(result), *missing, result["machine"]["pinned"]])
