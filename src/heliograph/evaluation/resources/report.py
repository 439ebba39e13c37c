"""The evaluation of resource discovery as a whole.

In:    quick or not, a seed.
Out:   one report of plain values: workloads, rows of all experiments, checks.
State: none.
Not here: the experiments (sharing.py, ages.py, architecture.py), the paper's claims (claims.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from heliograph.evaluation.resources import ages, architecture, claims, sharing
from heliograph.evaluation.resources.network import ServiceTimes


def evaluate(quick: bool, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Run all simulated experiments."""
    plan = sharing.QUICK if quick else sharing.SharingPlan()
    other = architecture.QUICK if quick else architecture.ArchitecturePlan()
    stage = sharing.SharingStage(plan, seed)
    found = sharing.evaluate_on(stage, say) | {"ages": ages.evaluate(stage, say)}
    found["architecture"] = architecture.evaluate(other, seed, say)
    return {
        "how": "simulated",
        "seed": seed,
        "quick": quick,
        "resources": plan.resources,
        "requests": plan.requests,
        "brokers": plan.edges + plan.routers,
        "service_times": asdict(ServiceTimes()),
        **found,
        "checks": claims.checks(found),
    }
