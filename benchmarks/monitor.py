"""monitor: what the service that publishes a broker's load and counters costs that broker in CPU time.

In:    nothing; three brokers: with `[monitor]` every second, with `[monitor]` once an hour, and without.
Out:   broker CPU-µs per published message of each, in turn, and the share that the monitor adds by default.
State: none.
Not here: the load generator (generator.py), other brokers (route.py).

What the monitor costs has two parts: one per publication, whenever it is on, and one per report. The broker that
reports once an hour has the first alone. A report costs the same however often there is one, so that reports every
second make the second part ten times as large as the default of 10 s does, and as much easier to tell from noise: by
default the monitor adds the first part and a tenth of the second.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from typing import Any

from benchmarks import machine
from benchmarks.field import say
from benchmarks.figures import budget, budget_lines, medians, rounded, spread, table, values
from benchmarks.generator import Generator
from benchmarks.peers import OURS
from benchmarks.peers.ours import Heliograph
from benchmarks.peers.server import Server

SAYS = "broker CPU that the monitor adds in route's case 1to1: per publication, and per report"
SYSTEMS = {
    "every second": Heliograph(("[monitor]", "interval_s = 1")),
    "every hour": Heliograph(("[monitor]", "interval_s = 3600")),
    "off": Heliograph(("[monitor]", "enabled = false")),
}
CASE = "1to1"
SHARE_MOST = 0.02
RARER = 10  # by default it reports once where the first broker does ten times
FIGURES = ("cpu_us", "kmsg_s", "broker_waited")


def run(quick: bool) -> dict[str, Any]:
    """All in turn, many rounds, since the difference is small."""
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
    off, idle, busy = (spent[name] for name in ("off", "every hour", "every second"))
    on = median(idle[number] / off[number] - 1 for number in off)
    reports = median((busy[number] - idle[number]) / off[number] for number in off)
    shares = {"on": rounded(on), "reports_every_second": rounded(reports), "by_default": rounded(on + reports / RARER)}
    return {
        "name": "monitor",
        "unit": "broker CPU-µs per published message, 256 B payload",
        "ours": {"cases": cases, "shares": shares},
        "peers": {},
        "rounds": rounds,
        "spread": {name: spread([*found.values()]) for name, found in spent.items()},
        "budget": [budget("share of CPU that the monitor adds by default", shares["by_default"], SHARE_MOST)],
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows = [
        [f"monitor {name}", found["cpu_us"], result["spread"][name], found["kmsg_s"], found["broker_waited"]]
        for name, found in result["ours"]["cases"].items()
    ]
    rows += [[f"share: {name}", share, "", "", ""] for name, share in result["ours"]["shares"].items()]
    return "\n".join([table(["", "CPU-µs/msg", "[min, max]", "kmsg/s", "waited"], rows), "", budget_lines(result)])
