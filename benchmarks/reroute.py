"""reroute: how long publications stop when a broker on their way does, or a link.

In:    our brokers, four of them: two ways from a to d, over b or over c.
Out:   per fault the gap in arrivals, publications lost, repeated and overtaken, with the budgets.
State: none.
Not here: faults of many kinds at once (the simulator's scenarios). No peer: none of those here has two ways.

One publication a millisecond goes from a to d. The broker in use, told by its CPU time, is stopped by SIGSTOP (no reset
comes: only silence tells) or killed; or its link to a, which goes through a relay, is reset while both brokers live on.
The gap is the longest interval between two arrivals around the fault, less the
millisecond. A stopped broker is woken up afterwards, so that what it had taken comes too late and must not count twice.
"""

from __future__ import annotations

import signal
from contextlib import closing
from time import perf_counter, sleep
from typing import Any

from benchmarks import machine
from benchmarks.field import Field, say
from benchmarks.figures import budget, budget_lines, medians, spread, table, values
from benchmarks.generator import RunError
from benchmarks.links import LinkEndedError
from benchmarks.peers import LINKABLE, OURS
from benchmarks.peers.network import Network
from benchmarks.sinks import MismatchError
from benchmarks.steady import Log, Stream

SAYS = "the gap in a steady stream when a broker on its way is stopped or killed, or a link reset, ms; ours alone"
NAMES = ("a", "b", "c", "d")
LINKS = (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))
TRANSIT = ("b", "c")
PERIOD_S = 0.001
SUSPECT_MS = 2_000  # the default of network.suspect_ms
STOPPED, KILLED, RESET = "stopped", "killed", "link reset"
CASES = (STOPPED, KILLED, RESET)
LIMITS_MS = {STOPPED: 1.5 * SUSPECT_MS, KILLED: 10.0, RESET: 10.0}
WATCH_S = {STOPPED: 2 * SUSPECT_MS / 1e3, KILLED: 1.0, RESET: 1.0}  # how long the stream goes on after the fault
SETTLE_S, QUIET_S, AFTER_S = 0.5, 0.5, 0.5
FIGURES = ("gap_ms", "quiet_gap_ms", "delay_ms", "lost", "repeated", "overtaken")
HOW = [
    "one publication of 64 B every millisecond from a to d; links a-b, a-c, b-d, c-d; default settings of the network",
    "gap_ms = longest interval between arrivals around the fault, less 1 ms; quiet_gap_ms = the same before the fault",
    "delay_ms = the longest way of a publication sent around the fault; where a changed cost has moved the stream "
    "meanwhile, the gap is short, and this still shows how long those waited that the stopped broker had",
    "link reset: the links a-b and a-c go through relays, and the one in use is reset at both ends; it is dialled anew",
    "a new network for every fault of every round; overtaken = arrivals behind a publication that was sent later",
]


def run(quick: bool) -> dict[str, Any]:
    """Every fault in every round."""
    facts = machine.facts()
    rounds: list[dict[str, Any]] = []
    rounds_max = 3 if quick else 10
    for number in range(1, rounds_max + 1):
        for case in CASES:
            say(f"round {number} of {rounds_max}: {case}")
            try:
                rounds.append({"round": number, "case": case, "system": OURS, **_fault(case)})
            except (LinkEndedError, MismatchError, OSError) as error:
                raise RunError(f"{case}: {type(error).__name__}: {error}") from error
    return _result(rounds) | {"quick": quick, "how": HOW, "machine": facts}


def _fault(case: str) -> dict[str, Any]:
    broker_cores, stream_cores = machine.split_cores()
    relayed = [("a", name) for name in TRANSIT] if case == RESET else []
    with Network(LINKABLE[OURS], NAMES, LINKS, broker_cores, relayed) as network, machine.confined(stream_cores):
        sleep(SETTLE_S)
        with closing(Stream(network.port("a"), network.port("d"), PERIOD_S)) as stream:
            return _watch(case, network, stream)


def _watch(case: str, network: Network, stream: Stream) -> dict[str, Any]:
    stream.run(QUIET_S)
    used = _in_use(network, stream)
    began = perf_counter()
    if case == RESET:
        network.reset("a", used)
    else:
        network.servers[used].signal(signal.SIGSTOP if case == STOPPED else signal.SIGKILL)
    stream.run(WATCH_S[case])
    ended = perf_counter()
    if case == STOPPED:
        network.servers[used].signal(signal.SIGCONT)
    stream.run(AFTER_S)
    stream.drain()
    return {"transit": used, **figures(stream.log, began, ended)}


def _in_use(network: Network, stream: Stream) -> str:
    """The broker between the ends that does the work."""
    before = {name: machine.cpu_seconds(network.servers[name].pids) for name in TRANSIT}
    stream.run(0.2)
    return max(TRANSIT, key=lambda name: machine.cpu_seconds(network.servers[name].pids) - before[name])


def figures(log: Log, began: float, ended: float) -> dict[str, float]:
    """What a fault at ``began`` did to the stream."""
    return {
        "gap_ms": log.gap(began, ended, PERIOD_S) * 1e3,
        "quiet_gap_ms": log.quiet_gap(began, PERIOD_S) * 1e3,
        "delay_ms": log.delay(began - PERIOD_S, ended) * 1e3,
        "lost": log.lost,
        "repeated": log.repeated,
        "overtaken": log.overtaken,
        "sent": len(log.sent),
    }


def _result(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    field = Field([OURS], {OURS: LINKABLE[OURS]})
    found = {case: medians(rounds, OURS, case, FIGURES) for case in CASES}
    ours, peers = field.describe({OURS: {"suspect_ms": SUSPECT_MS, **found}})
    repeated = max(entry["repeated"] for entry in rounds)
    return {
        "name": "reroute",
        "unit": "ms without arrivals, of a stream with one publication a millisecond",
        "ours": ours,
        "peers": peers,
        "ratios": {"stopped_by_suspect_ms": found[STOPPED]["gap_ms"] / SUSPECT_MS},
        "rounds": rounds,
        "spread": {
            figure: {case: spread([*values(rounds, OURS, case, figure).values()]) for case in CASES}
            for figure in FIGURES
        },
        "budget": [
            *(budget(f"{case}, gap", found[case]["gap_ms"], limit, "ms") for case, limit in LIMITS_MS.items()),
            *(
                budget(f"{case}, longest way", found[case]["delay_ms"], limit, "ms")
                for case, limit in LIMITS_MS.items()
            ),
            budget("repeated in any round", repeated, 0),
        ],
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    spreads = result["spread"]
    rows = [
        [case, *(item for name in FIGURES[:3] for item in (result["ours"][case][name], spreads[name][case]))]
        + [spreads[name][case] for name in FIGURES[3:]]
        for case in CASES
    ]
    head = ["fault", "gap ms", "[min, max]", "before it", "[min, max]", "delay ms", "[min, max]", *FIGURES[3:]]
    return "\n".join([table(head, rows), "", budget_lines(result), result["machine"]["pinned"]])
