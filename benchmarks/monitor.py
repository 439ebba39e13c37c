"""monitor: what the service that publishes a broker's load and counters costs that broker in CPU time.

In:    nothing; two brokers, one with `[monitor]` every second, one without.
Out:   broker CPU-µs per published message of both, in turn, and the share that the monitor adds.
State: none.
Not here: the load generator (generator.py), other brokers (route.py).

The monitor publishes every 10 s by default. Here it does so every second, so that each interval that is measured has
one of its rounds in it: by default it adds a tenth of that.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from benchmarks import machine
from benchmarks.field import say
from benchmarks.figures import budget, budget_lines, medians, rounded, spread, table, values
from benchmarks.generator import Generator
from benchmarks.peers import OURS
from benchmarks.peers.ours import Heliograph
from benchmarks.peers.server import Server

SAYS = "broker CPU that the monitor adds in route's case 1to1, publishing every second instead of every 10 s"
SYSTEMS = {
    "on": Heliograph(("[monitor]", "interval_s = 1")),
    "off": Heliograph(("[monitor]", "enabled = false")),
}
CASE = "1to1"
SHARE_MOST = 0.02
RARER = 10  # by default it publishes once where it publishes ten times here
FIGURES = ("cpu_us", "kmsg_s", "broker_waited")


def run(quick: bool) -> dict[str, Any]:
    """Both in turn, many rounds, since the difference is small."""
    rounds: list[dict[str, Any]] = []
    broker_cores, generator_cores = machine.split_cores()
    facts = machine.facts()
    with ExitStack() as stack:
        generator = stack.enter_context(Generator(generator_cores))
        servers = {}
        for name, system in SYSTEMS.items():
            servers[name] = stack.enter_context(Server(system, broker_cores))
            generator.ask("crowd", port=servers[name].port, ca_file=None)
        for number in range(1, (9 if quick else 25) + 1):
            say(f"round {number}")
            for name in SYSTEMS if number % 2 else reversed(SYSTEMS):
                server = servers[name]
                server.check_running()
                where = {"system": OURS, "port": server.port, "ca_file": None, "pids": server.pids}
                found = generator.ask("measure", case=CASE, warm_s=0.1, measure_s=1.0 if quick else 3.0, **where)
                rounds.append({"round": number, "case": CASE, "system": name, **found})
    return _result(rounds) | {"quick": quick, "machine": facts}


def _result(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    cases = {name: medians(rounds, name, CASE, FIGURES) for name in SYSTEMS}
    spent = {name: values(rounds, name, CASE, "cpu_us") for name in SYSTEMS}
    share = medians(
        [
            {"round": number, "case": CASE, "system": "share", "more": on / spent["off"][number] - 1}
            for number, on in spent["on"].items()
        ],
        "share",
        CASE,
        ["more"],
    )["more"]
    return {
        "name": "monitor",
        "unit": "broker CPU-µs per published message, 256 B payload",
        "ours": {"cases": cases, "share": share},
        "peers": {},
        "rounds": rounds,
        "spread": {name: spread([*found.values()]) for name, found in spent.items()},
        "budget": [
            budget("CPU that the monitor adds every 10 s: a tenth of the share here", share / RARER, SHARE_MOST)
        ],
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows = [
        [f"monitor {name}", found["cpu_us"], result["spread"][name], found["kmsg_s"], found["broker_waited"]]
        for name, found in result["ours"]["cases"].items()
    ]
    rows.append(["share that it adds every second", rounded(result["ours"]["share"]), "", "", ""])
    return "\n".join([table(["", "CPU-µs/msg", "[min, max]", "kmsg/s", "waited"], rows), "", budget_lines(result)])
