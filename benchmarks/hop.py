"""hop: what each further broker on the way adds, in latency and in CPU time.

In:    the systems that are installed and can be linked.
Out:   µs per hop at p50, one message at a time; broker CPU per message and broker of a loaded chain, by one broker's.
State: none.
Not here: failures on the way (reroute.py), how fast interests travel (interest.py).

Per hop is (p50 over a chain of three - p50 over one broker) / 2: what client, kernel and the first broker cost cancels.
Both are measured in the same turn, with brokers, publisher and subscriber on one core, for the reasons of latency.py.
Under load the generator has the other core, and one broker's CPU time is compared with that of each of the three.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from benchmarks import machine
from benchmarks.field import Field, say
from benchmarks.figures import budget, budget_lines, medians, ratios, spread, table, values
from benchmarks.generator import Generator
from benchmarks.latency import PAYLOAD_BYTES, WARM
from benchmarks.peers import LINKABLE, OURS, SYSTEMS
from benchmarks.peers.network import CHAIN, CHAIN_LINKS, Network
from benchmarks.peers.server import Server

SAYS = "a chain of 3 brokers: added p50 per hop on one core, CPU per broker under load; against nats, mosquitto"
ABLE = {name: system for name, system in LINKABLE.items() if name in SYSTEMS}
PINGPONG, BATCHED = "pingpong", "batched"
FIGURES = {
    PINGPONG: ("hop_us", "p50_us", "p50_one_us", "p99_us"),
    BATCHED: ("by_one", "cpu_us", "cpu_one_us", "kmsg_s"),
}
HOP_US, HOP_BY_NATS, BY_ONE = 50.0, 0.75, 1.5
HOW = [
    "chains: ours with a network key, nats by leaf nodes, mosquitto by bridges that carry everything at QoS 0",
    "ours: 100 access rules at every broker, the last one fits; duplicates detected; no other subscriptions",
    f"hop_us = (p50 of {len(CHAIN)} brokers - p50 of one) / {len(CHAIN) - 1}, both in the same turn, best of 3 series",
    "by_one = CPU per message of each of the chain's brokers, by that of a single broker; 256 B, 1to1 of route",
    "p99 and CPU are disturbed by other work on the machine, differences of p50 and ratios much less",
]


def run(quick: bool, *, systems: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure everyone in turns."""
    field, facts = Field(systems, ABLE), machine.facts()
    rounds_max = 4 if quick else 12
    core, other = {machine.cores()[0]}, {machine.cores()[-1]}
    facts["pinned"] = f"all on core {min(core)}, for all systems alike; under load, the generator on core {min(other)}"
    with ExitStack() as stack:
        course = Course(stack, field, core, other, quick)
        for number in range(1, rounds_max + 1):
            say(f"round {number} of {rounds_max}")
            for name in field.turn(field.present, number):
                course.measure(number, name)
    return _result(field, course.rounds) | {"quick": quick, "how": HOW, "machine": facts}


class Course:
    """A single broker and a chain of each system, and what has been measured of them."""

    def __init__(self, stack: ExitStack, field: Field, core: set[int], other: set[int], quick: bool) -> None:
        self.rounds: list[dict[str, Any]] = []
        self._messages, self._warm_s, self._measure_s = (1_000, 0.06, 0.25) if quick else (5_000, 0.4, 2.0)
        self._singles: dict[str, Server] = {}
        self._chains: dict[str, Network] = {}
        self._beside = stack.enter_context(Generator(core))
        self._across = stack.enter_context(Generator(other))
        for name in field.present:
            say(f"starting {name}, once alone and {len(CHAIN)} in a chain")
            self._singles[name] = stack.enter_context(Server(SYSTEMS[name], core))
            self._chains[name] = stack.enter_context(Network(LINKABLE[name], CHAIN, CHAIN_LINKS, core))

    def measure(self, number: int, name: str) -> None:
        """One system's turn."""
        single, chain = self._singles[name], self._chains[name]
        single.check_running()
        chain.check_running()
        alone = {"system": name, "port": single.port, "ca_file": None, "pids": single.pids}
        linked = {"system": name, "port": chain.port("a"), "ca_file": None, "pids": chain.pids}
        linked["far_port"] = chain.port("c")
        found = per_hop(self._best(alone), self._best(linked))
        self.rounds.append({"round": number, "case": PINGPONG, "system": name, **found})
        load = {"case": "1to1", "warm_s": self._warm_s, "measure_s": self._measure_s}
        found = by_one(*(self._across.ask("measure", **load, **where) for where in (alone, linked)))
        self.rounds.append({"round": number, "case": BATCHED, "system": name, **found})

    def _best(self, where: dict[str, Any]) -> dict[str, Any]:
        fields = {"payload_bytes": PAYLOAD_BYTES, "messages": self._messages, "warm": WARM, **where}
        series = [self._beside.ask("pingpong", **fields) for _ in range(3)]
        return min(series, key=lambda figures: float(figures["p50_us"]))


def per_hop(alone: dict[str, Any], linked: dict[str, Any]) -> dict[str, float]:
    """What a chain adds to one broker, for each broker that it has more."""
    return {
        "hop_us": (linked["p50_us"] - alone["p50_us"]) / (len(CHAIN) - 1),
        "p50_us": linked["p50_us"],
        "p50_one_us": alone["p50_us"],
        "p99_us": linked["p99_us"],
    }


def by_one(alone: dict[str, Any], linked: dict[str, Any]) -> dict[str, float]:
    """What a broker of the chain uses, by what one broker uses."""
    each = linked["cpu_us"] / len(CHAIN)
    return {
        "by_one": each / alone["cpu_us"],
        "cpu_us": each,
        "cpu_one_us": alone["cpu_us"],
        "kmsg_s": linked["kmsg_s"],
        "generator_busy": linked["generator_busy"],
        "broker_waited": linked["broker_waited"],
    }


def _result(field: Field, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    figures = {
        name: {case: medians(rounds, name, case, wanted) for case, wanted in FIGURES.items()} for name in field.present
    }
    compared = ratios(rounds, PINGPONG, OURS, field.peers, "hop_us")
    ours, peers = field.describe(figures)
    hop_us = ours.get(PINGPONG, {}).get("hop_us")
    return {
        "name": "hop",
        "unit": f"µs per hop at p50, {PAYLOAD_BYTES} B, one at a time; broker CPU-µs per message and broker, 256 B",
        "ours": ours,
        "peers": peers,
        "ratios": {peer: entry["ratio"] for peer, entry in compared.items()},
        "rounds": rounds,
        "spread": {
            "hop_us": {name: _spread(rounds, name, PINGPONG, "hop_us") for name in field.present},
            "by_one": {name: _spread(rounds, name, BATCHED, "by_one") for name in field.present},
            "ratios": {peer: entry["spread"] for peer, entry in compared.items()},
        },
        "budget": [
            budget("added p50 per hop, ours", hop_us, HOP_US, "µs"),
            budget("added p50 per hop, ours by nats", compared.get("nats", {}).get("ratio"), HOP_BY_NATS, "x nats"),
            budget("batched, CPU of each broker of ours", ours.get(BATCHED, {}).get("by_one"), BY_ONE, "x one broker"),
        ],
    }


def _spread(rounds: list[dict[str, Any]], name: str, case: str, figure: str) -> list[float]:
    return spread([*values(rounds, name, case, figure).values()])


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    systems = {"ours": result["ours"], **result["peers"]}
    rows = [
        [name, *_latency(system[PINGPONG]), result["spread"]["hop_us"][name], result["ratios"].get(name)]
        + [system[BATCHED]["cpu_us"], system[BATCHED]["by_one"], result["spread"]["by_one"][name]]
        + [system[BATCHED]["kmsg_s"]]
        for name, system in systems.items()
        if "absent" not in system
    ]
    head = ["system", "1 broker p50 µs", "3 brokers", "per hop", "[min, max]", "ours by it"]
    head += ["CPU-µs/msg/broker", "by one broker", "[min, max]", "kmsg/s"]
    missing = [f"{name}: {system['absent']}" for name, system in systems.items() if "absent" in system]
    return "\n".join([table(head, rows), "", budget_lines(result), *missing, result["machine"]["pinned"]])


def _latency(figures: dict[str, float]) -> list[float]:
    return [figures["p50_one_us"], figures["p50_us"], figures["hop_us"]]
