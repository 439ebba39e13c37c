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
from statistics import median
from typing import Any

from benchmarks import certificates, machine
from benchmarks.cases import CASES, CHANGES_PER_S, CHANGES_PER_S_MIN
from benchmarks.field import Field, say, serve
from benchmarks.figures import budget, budget_lines, medians, ratios, rounded, spread, table, values
from benchmarks.generator import Generator
from benchmarks.peers import OURS
from benchmarks.peers.server import Server

SAYS = "broker CPU per message: 1to1, 1to10, mix10, drip, TLS, churn; against nats, mosquitto, redis"
FIGURES = ("cpu_us", "kmsg_s", "broker_busy", "broker_waited", "generator_busy", "rss_mib")
NATS_LIMITS = {"1to1": 1.2, "mix10": 1.2, "1to10": 0.5}
CHURN_LIMIT = 2.0
QUIET = "ours_quiet_1to1"
QUICK = ("1to1", "1to10", "mix10", "drip", "1to1_tls", "churn")
TLS_QUICK = ("ours", "nats")
HOW = [
    "one load generator for all systems, in its own process; frames encoded beforehand, up to 64 KiB per write",
    "up to 16,384 messages on the way (mosquitto 1,024), counted where they arrive; every byte and the count compared",
    "ours: 10,000 other subscriptions, 1,000 of them wild, 100 access rules, the last one fits; duplicates detected",
    "peers: default settings, queue limits lifted so that nothing is lost; no other subscriptions, no access rules",
    "cpu_us = user and system time of the broker's processes over the measured interval, by messages published",
    "broker_waited = share of the interval in which other work had the broker's core: above 0.1, look at ratios only",
    "wide and churn: ours alone, 100,100 topics; churn makes 100 subscription changes a second, 1 in 10 wild",
]


def run(quick: bool, *, systems: Sequence[str] | None = None, cases: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure everyone, three rounds at least."""
    field, facts = Field(systems), machine.facts()
    chosen = [name for name in CASES if name in (cases or (QUICK if quick else CASES))]
    rounds_max, warm_s, measure_s = (3, 0.06, 0.3) if quick else (5, 0.4, 2.0)
    secured = [] if "1to1_tls" not in chosen else [name for name in field.present if not quick or name in TLS_QUICK]
    with ExitStack() as stack:
        course = Course(stack, field, secured)
        for number in range(1, rounds_max + 1):
            for case in chosen:
                say(f"round {number} of {rounds_max}: {case}")
                course.measure(number, case, warm_s, measure_s)
    return _result(field, chosen, course.rounds) | {"quick": quick, "how": HOW, "machine": facts}


class Course:
    """All servers of a run, and what has been measured of them."""

    def __init__(self, stack: ExitStack, field: Field, secured: Sequence[str]) -> None:
        broker_cores, generator_cores = machine.split_cores()
        self.rounds: list[dict[str, Any]] = []
        self._field = field
        self._generator = stack.enter_context(Generator(generator_cores))
        self._servers: dict[tuple[str, bool], Server] = {}
        tls = certificates.make(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tls-"))))
        for name in field.present:
            self._servers[name, False] = serve(stack, self._generator, name, broker_cores, None)
        for name in secured:
            self._servers[name, True] = serve(stack, self._generator, name, broker_cores, tls)

    def measure(self, number: int, case: str, warm_s: float, measure_s: float) -> None:
        """One case of one round: everyone who can, in turn."""
        secure = CASES[case].secure
        able = [name for name in self._field.present if (name, secure) in self._servers]
        if CASES[case].ours_only:
            able = [name for name in able if name == OURS]
        for name in self._field.turn(able, number):
            server = self._servers[name, secure]
            server.check_running()
            where = {"system": name, "port": server.port, "ca_file": server.ca_file, "pids": server.pids}
            found = self._generator.ask("measure", case=case, warm_s=warm_s, measure_s=measure_s, **where)
            self.rounds.append({"round": number, "case": case, "system": name, **found})


def _result(field: Field, cases: Sequence[str], rounds: list[dict[str, Any]]) -> dict[str, Any]:
    ran = {case: [name for name in field.present if values(rounds, name, case, "cpu_us")] for case in cases}
    ours, peers = field.describe(
        {
            name: {"cases": {case: medians(rounds, name, case, FIGURES) for case in cases if name in ran[case]}}
            for name in field.present
        }
    )
    by_peer = {case: found for case in cases if (found := ratios(rounds, case, OURS, field.peers, "cpu_us"))}
    by_quiet = _by_quiet(ours.get("cases", {}))
    budgets = [
        budget(f"{case}, ours by nats", by_peer.get(case, {}).get("nats", {}).get("ratio"), limit, "x nats")
        for case, limit in NATS_LIMITS.items()
    ]
    return {
        "name": "route",
        "unit": "broker CPU-µs per published message, 256 B payload",
        "ours": ours,
        "peers": peers,
        "ratios": {case: {peer: entry["ratio"] for peer, entry in found.items()} for case, found in by_peer.items()}
        | {case: {QUIET: ratio} for case, ratio in by_quiet.items()},
        "rounds": rounds,
        "spread": {
            "cpu_us": {case: {name: _spread(rounds, name, case) for name in ran[case]} for case in cases},
            "ratios": {
                case: {peer: entry["spread"] for peer, entry in found.items()} for case, found in by_peer.items()
            },
        },
        "budget": [*budgets, _churn_budget(by_quiet.get("churn"), rounds)],
        "cases": {case: CASES[case].says for case in cases},
    }


def _by_quiet(cases: dict[str, dict[str, float]]) -> dict[str, float]:
    """Ours with many topics, and with changes too, by ours at 1to1."""
    if "1to1" not in cases:
        return {}
    quiet = cases["1to1"]["cpu_us"]
    return {case: rounded(cases[case]["cpu_us"] / quiet) for case in ("wide", "churn") if case in cases}


def _churn_budget(ratio: float | None, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Met only if the broker also made the changes that were asked of it."""
    found = budget("churn, ours by our quiet 1to1", ratio, CHURN_LIMIT, "x quiet")
    changes_s = [entry.get("changes_s", 0.0) for entry in rounds if entry["case"] == "churn"]
    if changes_s and median(changes_s) < CHANGES_PER_S_MIN:
        found |= {"met": False, "why": f"only {median(changes_s):.0f} of {CHANGES_PER_S} changes a second were made"}
    return found


def _spread(rounds: list[dict[str, Any]], name: str, case: str) -> list[float]:
    return spread([*values(rounds, name, case, "cpu_us").values()])


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows: list[list[object]] = []
    for case in result["cases"]:
        for name, system in {"ours": result["ours"], **result["peers"]}.items():
            found = system.get("cases", {}).get(case)
            if found is not None:
                ratio = result["ratios"].get(case, {}).get(QUIET if name == "ours" else name)
                rows.append(
                    [f"{case} {name}", found["cpu_us"], result["spread"]["cpu_us"][case][name], found["kmsg_s"]]
                )
                rows[-1] += [found["rss_mib"], found["broker_waited"], found["generator_busy"], ratio]
    head = [
        "case, system",
        "CPU-µs/msg",
        "[min, max]",
        "kmsg/s",
        "RSS MiB",
        "broker waited",
        "generator busy",
        "ours by it",
    ]
    missing = [f"{name}: {peer['absent']}" for name, peer in result["peers"].items() if "absent" in peer]
    return "\n".join([table(head, rows), "", budget_lines(result), *missing, result["machine"]["pinned"]])
