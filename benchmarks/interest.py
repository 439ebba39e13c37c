"""interest: how soon a subscription at one end of three brokers is in force at the other.

In:    ours, and zenoh if it is installed.
Out:   ms from subscribing until a publication at the other end gets through, by system, with the ratio and the budget.
State: none.
Not here: a trial and what it shows (probes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

from benchmarks import machine
from benchmarks.field import Field, say
from benchmarks.figures import budget, budget_lines, medians, ratios, spread, table, values
from benchmarks.generator import Generator, RunError
from benchmarks.peers import LINKABLE, OURS
from benchmarks.peers.network import CHAIN, CHAIN_LINKS, Network
from benchmarks.probes import ENDS

SAYS = "a subscription made at one end of 3 brokers is in force at the other, ms; against zenoh"
CASE = "chain"
ABLE = {name: LINKABLE[name] for name in ENDS}
TIMES = ("in_force_ms", "arrived_ms")
FIGURES = (*TIMES, "share")
LIMIT_MS = 0.6
SETTLE_TRIALS, SETTLED_TRIALS = 30, 20
HOW = [
    "a trial subscribes at the far end to a new topic and publishes one probe at the near end, some delay later",
    "in_force_ms = the delay at which half of the probes arrive, found by steps of 20 µs: a bound from below, as the "
    "probe's way to the near broker is not in it",
    "arrived_ms = until such a probe has arrived: a bound from above, as its way back over three brokers is in it",
    "no other traffic; share = of the probes, how many arrived; it must be near a half",
    "ours: plain sockets; zenoh: its Python API in client mode, stamped in its own threads",
]


def run(quick: bool, *, systems: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure both in turns."""
    field, facts = Field(systems, ABLE), machine.facts()
    rounds_max, trials = (5, 100) if quick else (15, 400)
    broker_cores, probe_cores = machine.split_cores()
    rounds = []
    with ExitStack() as stack:
        prober = stack.enter_context(Generator(probe_cores, "benchmarks.probes"))
        for name in field.present:
            say(f"starting 3 x {name}")
            chain = stack.enter_context(Network(LINKABLE[name], CHAIN, CHAIN_LINKS, broker_cores))
            prober.ask("open", system=name, near_port=chain.port("a"), far_port=chain.port("c"))
            for settled, count in enumerate((SETTLE_TRIALS, SETTLED_TRIALS)):
                prober.ask("trials", system=name, count=count, settled=bool(settled))
        for number in range(1, rounds_max + 1):
            say(f"round {number} of {rounds_max}")
            for name in field.turn(field.present, number):
                found = summary(prober.ask("trials", system=name, count=trials, settled=True)["trials"])
                rounds.append({"round": number, "case": CASE, "system": name, **found})
    return _result(field, rounds) | {"quick": quick, "how": HOW, "machine": facts}


def summary(trials: Sequence[tuple[float, float | None]]) -> dict[str, float]:
    """Of the trials of one round, given in µs."""
    arrived = [arrived_us for _, arrived_us in trials if arrived_us is not None]
    if not arrived:
        raise RunError("interest: no probe has arrived in a whole round")
    return {
        "in_force_ms": median(sent_us for sent_us, _ in trials) / 1e3,
        "arrived_ms": median(arrived) / 1e3,
        "share": len(arrived) / len(trials),
    }


def _result(field: Field, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    figures = {name: medians(rounds, name, CASE, FIGURES) for name in field.present}
    compared = {figure: ratios(rounds, CASE, OURS, field.peers, figure) for figure in TIMES}
    ours, peers = field.describe(figures)
    return {
        "name": "interest",
        "unit": "ms from subscribing at one end of three brokers, median of a round's trials",
        "ours": ours,
        "peers": peers,
        "ratios": {figure: {peer: entry["ratio"] for peer, entry in compared[figure].items()} for figure in TIMES},
        "rounds": rounds,
        "spread": {figure: {name: _spread(rounds, name, figure) for name in field.present} for figure in TIMES}
        | {"ratios": {figure: {peer: one["spread"] for peer, one in compared[figure].items()} for figure in TIMES}},
        "budget": [
            budget("in force at the other end, ours", ours.get("in_force_ms"), LIMIT_MS, "ms"),
            *(
                budget(f"with a publication from there delivered, ours by {peer}", entry["ratio"], 1.0, "")
                for peer, entry in compared["arrived_ms"].items()
            ),
        ],
    }


def _spread(rounds: list[dict[str, Any]], name: str, figure: str) -> list[float]:
    return spread([*values(rounds, name, CASE, figure).values()])


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    systems = {"ours": result["ours"], **result["peers"]}
    rows = [
        [name, *(item for figure in TIMES for item in _cells(result, name, system, figure)), system["share"]]
        for name, system in systems.items()
        if "absent" not in system
    ]
    head = ["system", "in force ms", "[min, max]", "ours by it", "delivered ms", "[min, max]", "ours by it", "share"]
    missing = [f"{name}: {system['absent']}" for name, system in systems.items() if "absent" in system]
    return "\n".join([table(head, rows), "", budget_lines(result), *missing, result["machine"]["pinned"]])


def _cells(result: dict[str, Any], name: str, system: dict[str, Any], figure: str) -> list[Any]:
    return [system[figure], result["spread"][figure][name], result["ratios"][figure].get(name)]
