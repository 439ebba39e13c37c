"""sim: how many machine inputs per second the simulated world carries, on one core.

In:    nothing.
Out:   inputs/s of a world of real brokers among small machines that speak raw frames ("world"), and of a whole scenario
       with real sessions, programs, faults and all checkers ("scenario"). Digests are on in both.
State: none.
Not here: the world (src/heliograph/sim/), what a broker costs outside it (route.py).

Every input counts once, whichever machine has it: attach, receive, press, tell, done, failed, clock, wake, detach.
"""

from __future__ import annotations

from statistics import median
from time import perf_counter, process_time
from typing import Any

from benchmarks import machine
from benchmarks.field import say
from benchmarks.figures import rounded, spread, table
from benchmarks.generator import RunError
from benchmarks.stations import Publisher, Subscriber
from heliograph.broker.config import DEFAULT_PORT, BrokerConfig, ListenerConfig
from heliograph.machine import Machine
from heliograph.node import BROKER, Node, build
from heliograph.sim.loop import SECOND
from heliograph.sim.run import play
from heliograph.sim.scenario_files import load
from heliograph.sim.world import World

SAYS = "machine inputs per second of the simulated world, on one core"
LIMIT = 150_000
BROKERS = 4
TOPICS = 10  # per broker: one publisher each …
FAN_OUT = 10  # … and so many subscribers
SETTLE_NS = SECOND // 2
CASES = ("world", "scenario")


def run(quick: bool) -> dict[str, Any]:
    """Rounds of both cases, in turns."""
    rounds: list[dict[str, Any]] = []
    for number in range(1, (5 if quick else 15) + 1):
        say(f"round {number}")
        rounds.append({"round": number, "case": "world", "system": "ours", **_world(0.4 if quick else 1.0)})
        rounds.append({"round": number, "case": "scenario", "system": "ours", **_scenario(number)})
    found = {case: [entry["inputs_per_s"] for entry in rounds if entry["case"] == case] for case in CASES}
    value = median(found["world"])
    return {
        "name": "sim",
        "unit": "machine inputs per real second, one core; medians",
        "ours": {
            "inputs_per_s": rounded(value),
            "scenario_inputs_per_s": rounded(median(found["scenario"])),
            "brokers": BROKERS,
            "hosts": BROKERS * (1 + TOPICS * (1 + FAN_OUT)),
        },
        "peers": {},
        "ratios": {},
        "rounds": rounds,
        "spread": {case: spread(values) for case, values in found.items()},
        "budget": [
            {
                "what": "inputs/s, at least",
                "limit": LIMIT,
                "value": rounded(value),
                "unit": "1/s",
                "met": value >= LIMIT,
            }
        ],
        "quick": quick,
        "machine": machine.facts(),
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    ours = result["ours"]
    rows = [
        ["world", ours["inputs_per_s"], result["spread"]["world"]],
        ["scenario", ours["scenario_inputs_per_s"], result["spread"]["scenario"]],
    ]
    (limit,) = result["budget"]
    verdict = "met" if limit["met"] else "MISSED"
    return "\n".join([table(["case", "inputs/s", "[min, max]"], rows), "", f"budget {limit['limit']}: {verdict}"])


def _world(virtual_s: float) -> dict[str, Any]:
    """Brokers whose publishers send a publication every millisecond."""
    world = World(1)
    for number in range(BROKERS):
        _add_broker(world, f"broker-{number}")
    world.run(SETTLE_NS)
    before, watch = world.step, _Watch()
    world.run(SETTLE_NS + int(virtual_s * SECOND))
    return {**watch.read(world.step - before), "digest": world.digest.hex()}


def _add_broker(world: World, name: str) -> None:
    config = BrokerConfig(name=name, listeners=(ListenerConfig(host=name),))
    host = world.add(name, lambda incarnation: build(config, seed=1, incarnation=incarnation))
    world.listen(host, (name, DEFAULT_PORT), "main", BROKER)
    world.start(host)
    for topic in range(TOPICS):
        for reader in range(FAN_OUT):
            _add_station(world, f"{name}-s{topic}-{reader}", Subscriber(name, f"load/{topic}/+", reader))
        _add_station(world, f"{name}-p{topic}", Publisher(name, f"load/{topic}/x".encode(), topic))


def _add_station(world: World, name: str, station: Machine) -> None:
    node = Node(name=name, machines={"station": station}, pipes=(), listeners={})
    world.start(world.add(name, lambda _incarnation: node))


def _scenario(seed: int) -> dict[str, Any]:
    """A shipped scenario, with everything that a user would see."""
    watch = _Watch()
    result = play(load("storm"), seed)
    figures = watch.read(result.inputs)
    if not result.ok:
        raise RunError(f"storm, seed {seed}: {result.violations[0]}")
    return {**figures, "digest": result.digest}


class _Watch:
    """Real time, which is what counts, and the processor's, which says how much of it others took."""

    def __init__(self) -> None:
        self._real, self._cpu = perf_counter(), process_time()

    def read(self, inputs: int) -> dict[str, Any]:
        """The figures of a round that carried so many inputs."""
        real, cpu = perf_counter() - self._real, process_time() - self._cpu
        return {"inputs": inputs, "real_s": real, "inputs_per_s": inputs / real, "inputs_per_cpu_s": inputs / cpu}
