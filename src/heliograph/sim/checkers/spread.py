"""Spread: an overloaded broker passes clients on until it is no longer overloaded, and no client goes to and fro.

In:    the scenario's limits; at the end the reports of brokers and clients.
Out:   a violation if no client was asked to move, a broker is still overloaded, or a client moved too often.
State: none.
Not here: losses and repetitions due to moves (delivery.py, duplicates.py).
Paper: N8, clients can be asked to roam.
"""

from __future__ import annotations

from heliograph.sim.checkers.base import Checker
from heliograph.topology.scenario_network import client_names


class LoadSpread(Checker):
    """Load is shed, and clients move once."""

    name = "spread"

    def end(self) -> None:
        """Check which client is at which broker."""
        topology = self.scenario.topology
        asked = 0
        for name, plan in topology.brokers.items():
            usage, overview = self.ask(name, "usage"), self.ask(name, "overview")
            if usage is None or overview is None:
                continue
            asked += overview["load"]["asked_to_move"]
            clients, most = usage["connections"], plan.limits.links_max * plan.load.links_permille_high // 1_000
            if clients > most:
                self.blame(f"{name} still has {clients} clients; above {most} it is overloaded")
        if not asked:
            self.blame("no client was asked to move")
        head = self.scenario.scenario
        rests = [plan.load.rest_s for plan in topology.brokers.values()]
        moves_max = 1 + int((head.duration_s + head.settle_s) / min(rests))
        for group, clients_plan in topology.clients.items():
            for who in client_names(group, clients_plan):
                report = self.ask(who, "overview")
                if report is not None and report["roamed"] > moves_max:
                    self.blame(f"{who} moved {report['roamed']} times; {moves_max} would be enough")
