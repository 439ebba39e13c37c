"""monitor: what the service that publishes a broker's load and counters costs that broker in CPU time.

In:    nothing; three brokers: with `[monitor]` every second, with `[monitor]` once an hour, and without.
Out:   broker CPU-µs per published message of each, in turn, and the share that the monitor adds by default: the median
       of several starts, with the smallest and largest.
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
from benchmarks.figures import budget, budget_lines, rounded, spread, table, values
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
STARTS, STARTS_QUICK = 9, 5
ROUNDS, ROUNDS_QUICK = 5, 5
FIGURES = ("cpu_us", "kmsg_s", "broker_waited")


def run(quick: bool) -> dict[str, Any]:
    """All in turn, each started several times: two processes of one broker differ by more than the monitor costs."""
    rounds: list[dict[str, Any]] = []
    facts = machine.facts()
    for number in range(1, (STARTS_QUICK if quick else STARTS) + 1):
        say(f"start {number}")
        rounds += _started(number, ROUNDS_QUICK if quick else ROUNDS, 1.0 if quick else 3.0)
    return _result(rounds) | {"quick": quick, "machine": facts}


def _started(start: int, times: int, measure_s: float) -> list[dict[str, Any]]:
    """Start all brokers, and measure them in turn."""
    rounds = []
    broker_cores, generator_cores = machine.split_cores()
    with ExitStack() as stack:
        generator = stack.enter_context(Generator(generator_cores))
        servers = {}
        for name, system in SYSTEMS.items() if start % 2 else reversed(SYSTEMS.items()):
            servers[name] = stack.enter_context(Server(system, broker_cores))
            generator.ask("crowd", port=servers[name].port, ca_file=None)
        for number in range(1, times + 1):
            for name in SYSTEMS if number % 2 else reversed(SYSTEMS):
                server = servers[name]
                server.check_running()
                where = {"system": OURS, "port": server.port, "ca_file": None, "pids": server.pids}
                found = generator.ask("measure", case=CASE, warm_s=0.1, measure_s=measure_s, **where)
                rounds.append({"start": start, "round": number, "case": CASE, "system": name, **found})
    return rounds


def _result(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    starts = sorted({entry["start"] for entry in rounds})
    every = {name: [entry for entry in rounds if entry["system"] == name] for name in SYSTEMS}
    cases = {
        name: {figure: rounded(median(entry[figure] for entry in found)) for figure in FIGURES}
        for name, found in every.items()
    }
    shares = [_shares([entry for entry in rounds if entry["start"] == start]) for start in starts]
    found = {name: rounded(median(each[name] for each in shares)) for name in shares[0]}
    return {
        "name": "monitor",
        "unit": "broker CPU-µs per published message, 256 B payload",
        "ours": {"cases": cases, "shares": found},
        "peers": {},
        "rounds": rounds,
        "spread": {name: spread([entry["cpu_us"] for entry in of]) for name, of in every.items()},
        "spread_of_shares": {name: spread([each[name] for each in shares]) for name in shares[0]},
        "budget": [budget("share of CPU that the monitor adds by default", found["by_default"], SHARE_MOST)],
    }


def _shares(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """Of one start: what the monitor adds per publication, per report, and by default; medians of rounds."""
    off, idle, busy = (values(rounds, name, CASE, "cpu_us") for name in ("off", "every hour", "every second"))
    on = median(idle[number] / off[number] - 1 for number in off)
    reports = median((busy[number] - idle[number]) / off[number] for number in off)
    return {"on": on, "reports_every_second": reports, "by_default": on + reports / RARER}


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows = [
        [f"monitor {name}", found["cpu_us"], result["spread"][name], found["kmsg_s"], found["broker_waited"]]
        for name, found in result["ours"]["cases"].items()
    ]
    shares = result["ours"]["shares"].items()
    rows += [[f"share: {name}", share, result["spread_of_shares"][name], "", ""] for name, share in shares]
    return "\n".join([table(["", "CPU-µs/msg", "[min, max]", "kmsg/s", "waited"], rows), "", budget_lines(result)])
