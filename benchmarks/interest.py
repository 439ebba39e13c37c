"""interest: how soon a subscription at one end of three brokers is in force at the other.

In:    ours, and zenoh if it is installed.
Out:   ms from subscribing to the first publication that gets through, medians by system, with the ratio and the budget.
State: none.
Not here: a trial and why it says so little about itself (probes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median, quantiles
from typing import Any

from benchmarks import machine
from benchmarks.field import Field, say
from benchmarks.figures import budget, budget_lines, medians, ratios, spread, table, values
from benchmarks.generator import Generator
from benchmarks.peers import LINKABLE, OURS
from benchmarks.peers.network import CHAIN, CHAIN_LINKS, Network
from benchmarks.probes import ENDS, STEP_NS

SAYS = "a subscription made at one end of 3 brokers is in force at the other, ms; against zenoh"
CASE = "chain"
ABLE = {name: LINKABLE[name] for name in ENDS}
FIGURES = ("arrived_ms", "in_force_ms", "p90_ms")
LIMIT_MS = 0.6
SETTLE_TRIALS = 10
HOW = [
    f"probes every {STEP_NS // 1000} µs at the near end, from a random moment after subscribing to a new topic",
    "arrived_ms = until the first probe that gets through has arrived; it bounds from above what the budget is about",
    "in_force_ms = until that probe was sent: half a step more than the truth, less its way to the near broker",
    "ours: plain sockets; zenoh: its Python API in client mode, stamped in its own threads; each topic is used once",
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
            prober.ask("trials", system=name, count=SETTLE_TRIALS)
        for number in range(1, rounds_max + 1):
            say(f"round {number} of {rounds_max}")
            for name in field.turn(field.present, number):
                found = summary(prober.ask("trials", system=name, count=trials)["trials"])
                rounds.append({"round": number, "case": CASE, "system": name, **found})
    return _result(field, rounds) | {"quick": quick, "how": HOW, "machine": facts}


def summary(trials: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Of the trials of one round, given in µs."""
    arrived = [arrived_us for _, arrived_us in trials]
    return {
        "in_force_ms": median(sent_us for sent_us, _ in trials) / 1e3,
        "arrived_ms": median(arrived) / 1e3,
        "p90_ms": quantiles(arrived, n=10)[-1] / 1e3,
        "trials": len(trials),
    }


def _result(field: Field, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    figures = {name: medians(rounds, name, CASE, FIGURES) for name in field.present}
    compared = ratios(rounds, CASE, OURS, field.peers, "arrived_ms")
    ours, peers = field.describe(figures)
    return {
        "name": "interest",
        "unit": "ms from subscribing at one end of three brokers, median of a round's trials",
        "ours": ours,
        "peers": peers,
        "ratios": {peer: entry["ratio"] for peer, entry in compared.items()},
        "rounds": rounds,
        "spread": {
            "arrived_ms": {name: spread([*values(rounds, name, CASE, "arrived_ms").values()]) for name in field.present},
            "ratios": {peer: entry["spread"] for peer, entry in compared.items()},
        },
        "budget": [
            budget("in force at the other end, ours", ours.get("in_force_ms"), LIMIT_MS, "ms"),
            budget("and the first publication has arrived, ours", ours.get("arrived_ms"), LIMIT_MS, "ms"),
        ],
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    systems = {"ours": result["ours"], **result["peers"]}
    rows = [
        [name, *(system[figure] for figure in ("in_force_ms", "arrived_ms"))]
        + [result["spread"]["arrived_ms"][name], system["p90_ms"], result["ratios"].get(name)]
        for name, system in systems.items()
        if "absent" not in system
    ]
    head = ["system", "in force ms", "first arrival ms", "[min, max]", "p90 ms", "ours by it"]
    missing = [f"{name}: {system['absent']}" for name, system in systems.items() if "absent" in system]
    return "\n".join([table(head, rows), "", budget_lines(result), *missing, result["machine"]["pinned"]])
