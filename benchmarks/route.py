"""route: what one published message costs a broker in CPU time, ours against others.

In:    the systems that are installed; the cases of cases.py.
Out:   broker CPU-µs per published message, messages per second and memory, by case and system, with ratios and budgets.
State: none.
Not here: the load generator (generator.py), how a system is spoken to (peers/).

Every measurement is made on fresh links: connect, subscribe, warm up until the pipe is full, measure, stop, and wait
until the last message has arrived and been compared. Systems take turns within each case of each round.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import certificates, machine
from benchmarks.cases import CASES
from benchmarks.field import Field, say, serve
from benchmarks.figures import budget, budget_lines, medians, ratios, spread, table, values
from benchmarks.generator import Generator
from benchmarks.peers import OURS
from benchmarks.peers.server import Server

SAYS = "broker CPU per message: 1to1, 1to10, mix10, drip, TLS, churn; against nats, mosquitto, redis"
FIGURES = ("cpu_us", "kmsg_s", "broker_busy", "generator_busy", "rss_mib")
NATS_LIMITS = {"1to1": 1.2, "mix10": 1.2, "1to10": 0.5}
CHURN_LIMIT = 2.0
TLS_QUICK = ("ours", "nats")
HOW = [
    "one load generator for all systems, in its own process; frames encoded beforehand, up to 64 KiB per write",
    "up to 16,384 messages on the way (mosquitto 2,048), counted where they arrive; every byte and the count compared",
    "ours: 10,000 other subscriptions, 1,000 of them wild, 100 access rules, the last one fits; duplicates detected",
    "peers: default settings, queue limits lifted so that nothing is lost; no other subscriptions, no access rules",
    "cpu_us = user and system time of the broker's processes over the measured interval, by messages published",
    "wide and churn: ours alone, 100,100 topics; churn makes 100 subscription changes a second, 1 in 10 wild",
]


def run(quick: bool, *, systems: Sequence[str] | None = None, cases: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure everyone, three rounds at least."""
    field, facts = Field(systems), machine.facts()
    chosen = [name for name in CASES if cases is None or name in cases]
    rounds_max, warm_s, measure_s = (3, 0.1, 0.45) if quick else (5, 0.4, 2.0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tls-")))
        broker_cores, generator_cores = machine.split_cores()
        generator = stack.enter_context(Generator(generator_cores))
        servers = {(name, False): serve(stack, generator, name, broker_cores, None) for name in field.present}
        if "1to1_tls" in chosen:
            tls = certificates.make(folder)
            secured = [name for name in field.present if not quick or name in TLS_QUICK]
            servers |= {(name, True): serve(stack, generator, name, broker_cores, tls) for name in secured}
        rounds = []
        for number in range(1, rounds_max + 1):
            for case in chosen:
                say(f"round {number} of {rounds_max}: {case}")
                rounds += _one_case(field, generator, servers, number, case, warm_s, measure_s)
    return _result(field, chosen, rounds) | {"quick": quick, "how": HOW, "machine": facts}


def _one_case(
    field: Field,
    generator: Generator,
    servers: dict[tuple[str, bool], Server],
    number: int,
    case: str,
    warm_s: float,
    measure_s: float,
) -> list[dict[str, Any]]:
    able = [name for name in field.present if (name, CASES[case].secure) in servers]
    names = [OURS] if CASES[case].ours_only else able
    found = []
    for name in field.turn([name for name in names if name in able], number) if able else []:
        server = servers[name, CASES[case].secure]
        server.check_running()
        figures = generator.ask(
            "measure",
            system=name,
            port=server.port,
            ca_file=server.ca_file,
            case=case,
            pids=server.pids,
            warm_s=warm_s,
            measure_s=measure_s,
        )
        found.append({"round": number, "case": case, "system": name, **figures})
    return found


def _result(field: Field, cases: Sequence[str], rounds: list[dict[str, Any]]) -> dict[str, Any]:
    ran = {case: [name for name in field.present if values(rounds, name, case, "cpu_us")] for case in cases}
    figures = {
        name: {"cases": {case: medians(rounds, name, case, FIGURES) for case in cases if name in ran[case]}}
        for name in field.present
    }
    compared = {case: ratios(rounds, case, OURS, field.peers, "cpu_us") for case in cases}
    quiet = figures.get(OURS, {}).get("cases", {})
    against_quiet = {
        case: quiet[case]["cpu_us"] / quiet["1to1"]["cpu_us"]
        for case in ("wide", "churn")
        if {case, "1to1"} <= set(quiet)
    }
    ours, peers = field.describe(figures)
    return {
        "name": "route",
        "unit": "broker CPU-µs per published message, 256 B payload",
        "ours": ours,
        "peers": peers,
        "ratios": {
            case: {peer: entry["ratio"] for peer, entry in found.items()} for case, found in compared.items() if found
        }
        | {case: {"ours_quiet_1to1": float(f"{ratio:.3g}")} for case, ratio in against_quiet.items()},
        "rounds": rounds,
        "spread": {
            "cpu_us": {
                case: {name: spread([*values(rounds, name, case, "cpu_us").values()]) for name in ran[case]}
                for case in cases
            },
            "ratios": {
                case: {peer: entry["spread"] for peer, entry in found.items()}
                for case, found in compared.items()
                if found
            },
        },
        "budget": [
            budget(f"{case}, ours by nats", compared.get(case, {}).get("nats", {}).get("ratio"), limit, "x nats")
            for case, limit in NATS_LIMITS.items()
        ]
        + [budget("churn, ours by our quiet 1to1", against_quiet.get("churn"), CHURN_LIMIT, "x quiet")],
        "cases": {case: CASES[case].says for case in cases},
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows: list[list[object]] = []
    for case in result["cases"]:
        for name, system in {"ours": result["ours"], **result["peers"]}.items():
            found = system.get("cases", {}).get(case)
            if found is not None:
                ratio = result["ratios"].get(case, {}).get("ours_quiet_1to1" if name == "ours" else name)
                rows.append(
                    [f"{case} {name}", found["cpu_us"], result["spread"]["cpu_us"][case][name], found["kmsg_s"]]
                )
                rows[-1] += [found["rss_mib"], found["generator_busy"], ratio]
    head = ["case, system", "CPU-µs/msg", "[min, max]", "kmsg/s", "RSS MiB", "generator busy", "ours by it"]
    missing = [f"{name}: {peer['absent']}" for name, peer in result["peers"].items() if "absent" in peer]
    return "\n".join([table(head, rows), "", budget_lines(result), *missing, result["machine"]["pinned"]])
