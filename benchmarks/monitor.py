"""monitor: what the service that publishes a broker's load and counters costs that broker in CPU time.

In:    nothing; one broker, whose settings are reloaded between rounds: reports every second, or once an hour.
Out:   broker CPU-µs per published message with each, in turn, and the share that reports add by default, with the
       bound that it is below with a certainty of 97 %.
State: none.
Not here: the load generator (generator.py), other brokers (route.py).

The monitor costs something when it reports, and nothing per publication. A broker also counts the parcels that other
brokers send it, to keep one in a thousand, whether it has a monitor or not; here is one broker, so that this count is
not measured. A report costs the same however often there is one, so that reports every second cost
ten times as much as the default of one in 10 s, and are as much easier to tell from noise. Both rounds of a pair are of
one process, since two processes of the same broker differ by more than the monitor costs.
"""

from __future__ import annotations

from math import sqrt
from statistics import fmean, median, stdev
from typing import Any

from benchmarks import machine
from benchmarks.field import say
from benchmarks.figures import budget, budget_lines, rounded, spread, table, values
from benchmarks.generator import Generator
from benchmarks.peers import OURS
from benchmarks.peers.ours import Heliograph
from benchmarks.peers.server import Server

SAYS = "broker CPU that the monitor's reports add in route's case 1to1"
SYSTEMS = {
    "every second": Heliograph(("[monitor]", "interval_s = 1")),
    "every hour": Heliograph(("[monitor]", "interval_s = 3600")),
}
CASE = "1to1"
SHARE_MOST = 0.02
RARER = 10  # by default it reports once where the first settings do ten times
PAIRS, PAIRS_QUICK = 30, 12
FIGURES = ("cpu_us", "kmsg_s", "broker_waited")


def run(quick: bool) -> dict[str, Any]:
    """Both settings in turn, in one process."""
    rounds: list[dict[str, Any]] = []
    facts = machine.facts()
    broker_cores, generator_cores = machine.split_cores()
    with Generator(generator_cores) as generator, Server(SYSTEMS["every hour"], broker_cores) as server:
        generator.ask("crowd", port=server.port, ca_file=None)
        for number in range((PAIRS_QUICK if quick else PAIRS) + 1):
            say(f"pair {number}" if number else "warming up")
            for name in SYSTEMS if number % 2 else reversed(SYSTEMS):
                server.reload(SYSTEMS[name])
                where = {"system": OURS, "port": server.port, "ca_file": None, "pids": server.pids}
                found = generator.ask("measure", case=CASE, warm_s=0.2, measure_s=1.5 if quick else 3.0, **where)
                if number:
                    rounds.append({"round": number, "case": CASE, "system": name, **found})
    return _result(rounds) | {"quick": quick, "machine": facts}


def _result(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    every = {name: [entry for entry in rounds if entry["system"] == name] for name in SYSTEMS}
    cases = {
        name: {figure: rounded(median(entry[figure] for entry in found)) for figure in FIGURES}
        for name, found in every.items()
    }
    busy, idle = (values(rounds, name, CASE, "cpu_us") for name in SYSTEMS)
    shares = [(busy[number] / idle[number] - 1) / RARER for number in idle]
    below = fmean(shares) + 2 * stdev(shares) / sqrt(len(shares))
    return {
        "name": "monitor",
        "unit": "broker CPU-µs per published message, 256 B payload",
        "ours": {"cases": cases, "share_by_default": rounded(fmean(shares)), "share_below": rounded(below)},
        "peers": {},
        "rounds": rounds,
        "spread": {name: spread([entry["cpu_us"] for entry in of]) for name, of in every.items()},
        "budget": [budget("share of CPU that reports add by default is below", below, SHARE_MOST)],
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows = [
        [f"reports {name}", found["cpu_us"], result["spread"][name], found["kmsg_s"], found["broker_waited"]]
        for name, found in result["ours"]["cases"].items()
    ]
    ours = result["ours"]
    share = f"by default: {ours['share_by_default']:+.2%} on average of {len(result['rounds']) // 2} pairs"
    head = ["", "CPU-µs/msg", "[min, max]", "kmsg/s", "waited"]
    return "\n".join([table(head, rows), "", share, budget_lines(result)])
