"""The paper's claims about its experiments, as checks that can fail.

In:    the rows of all experiments, by name.
Out:   checks: the claim, whether it holds, the deciding values, and why.
State: none.
Not here: the experiments (sharing.py, ages.py, architecture.py).
Paper: [resources] §6.3, §6.2.2 (several Gaussians), §5.2 (age).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from heliograph.discovery.resources.forwarding import DIRECT, NORMAL, SIMILARITY
from heliograph.evaluation.resources.architecture import (
    CENTRAL,
    DECENTRAL,
    DYNAMIC,
    DYNAMIC_CONTINUOUS,
    STATIC,
    STATIC_CONTINUOUS,
)
from heliograph.evaluation.resources.sharing import chosen
from heliograph.evaluation.resources.workload import BALANCED, GEOMETRIC

METRICS = {
    "time_ms": "discovery time",
    "publications": "publication messages",
    "subscriptions": "subscription messages",
    "matchings": "matching operations",
}
FLAT = 1.1  # the largest value divided by the smallest
ABOUT_CONSTANT = 1.5
BUDGET_LEVEL, BUDGET = 80, 0.5

Row = dict[str, Any]
Check = dict[str, Any]


def checks(found: Mapping[str, Sequence[Row]]) -> list[Check]:
    """All of them. ``found``: the rows of "sharing", "gaussians", "ages" and "architecture"."""
    sharing, architecture = found["sharing"], found["architecture"]
    return [
        _correct([*sharing, *found["gaussians"], *found["ages"], *architecture]),
        *(check for metric in METRICS for check in _similarity(sharing, metric)),
        _publications_rise(sharing),
        _normal_is_flat(sharing),
        _unbalanced_is_cheaper(sharing),
        *_direct(sharing),
        _gaussians(found["gaussians"]),
        *_ages(found["ages"]),
        *_architecture(architecture),
    ]


def _check(claim: str, holds: bool, values: dict[str, Any], why: str) -> Check:
    return {"claim": claim, "holds": holds, "values": values, "why": why}


def _correct(rows: Sequence[Row]) -> Check:
    wrong = sum(row["wrong"] for row in rows)
    return _check(
        "every answer is complete and right",
        wrong == 0,
        {"wrong": wrong},
        "not in the paper: each answer is compared with the workload, so that nothing is saved by losing results",
    )


def _pairs(rows: Sequence[Row], metric: str) -> dict[tuple[Any, ...], dict[int, tuple[float, float]]]:
    """Normal and by similarity, per distribution and level."""
    found: dict[tuple[Any, ...], dict[int, tuple[float, float]]] = {}
    for row in chosen(rows, deliver=NORMAL):
        where = {name: row[name] for name in ("resources", "space", "time", "similarity")}
        (other,) = chosen(rows, deliver=SIMILARITY, **where)
        key = (row["resources"], row["space"], row["time"])
        found.setdefault(key, {})[row["similarity"]] = (row[metric], other[metric])
    return found


def _similarity(rows: Sequence[Row], metric: str) -> list[Check]:
    pairs = _pairs(rows, metric)
    ratios = {
        f"{'/'.join(key)} {level}%": ours / normal for key, by in pairs.items() for level, (normal, ours) in by.items()
    }
    worst = max(ratios, key=lambda name: ratios[name])
    gaps = {}
    for key, by in pairs.items():
        first, last = min(by), max(by)
        gaps["/".join(key)] = (by[first][0] - by[first][1], by[last][0] - by[last][1])
    name = METRICS[metric]
    return [
        _check(
            f"similarity forwarding: less {name} than normal, in every workload",
            all(ratio < 1 for ratio in ratios.values()),
            {"worst ratio": round(ratios[worst], 3), "in": worst, "best ratio": round(min(ratios.values()), 3)},
            "a covered request goes to one broker instead of to all hosts, and its answer is one package",
        ),
        _check(
            f"similarity forwarding: the more similarity, the more {name} is saved",
            all(last > first for first, last in gaps.values()),
            {key: f"{first:.4g} -> {last:.4g}" for key, (first, last) in gaps.items()},
            "saved = normal less similarity, at the least and at the greatest similarity",
        ),
    ]


def _publications_rise(rows: Sequence[Row]) -> Check:
    held, values = True, {}
    for deliver in (NORMAL, SIMILARITY):
        for key, by in _pairs(rows, "publications").items():
            line = [pair[deliver == SIMILARITY] for _, pair in sorted(by.items())]
            held &= line[0] < line[-1]
            values[f"{deliver} {'/'.join(key)}"] = f"{line[0]} -> {line[-1]}"
    return _check(
        "publication messages grow with similarity",
        held,
        values,
        "requests that match nothing are replaced by ones that match, so there are more answers to deliver",
    )


def _normal_is_flat(rows: Sequence[Row]) -> Check:
    spread = {}
    for key, by in _pairs(rows, "subscriptions").items():
        line = [normal for normal, _ in by.values()]
        spread["/".join(key)] = round(max(line) / min(line), 3)
    return _check(
        "normal: subscription messages stay the same",
        all(each <= FLAT for each in spread.values()),
        spread,
        f"greatest over least, at most {FLAT}: requests overlap as many hosting brokers whatever their similarity",
    )


def _unbalanced_is_cheaper(rows: Sequence[Row]) -> Check:
    worst: dict[str, float] = {}
    for row in rows:
        if row["resources"] != BALANCED or row["deliver"] == DIRECT:
            continue
        where = {name: row[name] for name in ("space", "time", "similarity", "deliver")}
        for other in chosen(rows, resources=GEOMETRIC, **where):
            for metric in METRICS:
                worst[metric] = max(worst.get(metric, 0), other[metric] / row[metric])
    return _check(
        "resources in few places: every metric is lower",
        all(ratio < 1 for ratio in worst.values()),
        {METRICS[metric]: round(ratio, 3) for metric, ratio in worst.items()},
        "the worst ratio of unbalanced to balanced: fewer brokers host what a request overlaps",
    )


def _direct(rows: Sequence[Row]) -> list[Check]:
    found = []
    for row in chosen(rows, deliver=DIRECT):
        where = {name: row[name] for name in ("resources", "space", "time", "similarity")}
        (normal,) = chosen(rows, deliver=NORMAL, **where)
        values = {name: f"{normal[metric]} -> {row[metric]}" for metric, name in METRICS.items()}
        found.append(
            _check(
                f"direct, {row['resources']}: fewer publication messages, as many subscriptions and matchings",
                row["publications"] < normal["publications"]
                and row["subscriptions"] == normal["subscriptions"]
                and row["matchings"] == normal["matchings"],
                values,
                "an answer takes one frame from its host to the requester's broker instead of one per hop; the paper "
                "found the time about the same, which is reported and not judged",
            )
        )
    return found


def _gaussians(rows: Sequence[Row]) -> Check:
    worst: dict[str, float] = {}
    for row in chosen(rows, deliver=NORMAL):
        (other,) = chosen(rows, deliver=SIMILARITY, time=row["time"])
        worst[row["time"]] = max(other[metric] / row[metric] for metric in METRICS)
    return _check(
        "several Gaussians in time: similarity forwarding lowers every metric under each",
        all(ratio < 1 for ratio in worst.values()),
        {time: round(ratio, 3) for time, ratio in worst.items()},
        "the worst ratio of similarity to normal over the four metrics",
    )


def _ages(rows: Sequence[Row]) -> list[Check]:
    messages = {row["allowed_age_s"]: row["subscriptions"] for row in rows}
    outdated = {row["allowed_age_s"]: row["outdated"] for row in rows}
    return [
        _check(
            "the longer answers may be shared, the fewer subscription messages",
            all(many > few for many, few in pairwise(messages.values())),
            {f"{age:g} s": count for age, count in messages.items()},
            "an older answer covers more requests",
        ),
        _check(
            "… and the more results are outdated; none if no age is allowed",
            outdated[0.0] == 0 and all(few < many for few, many in pairwise(outdated.values())),
            {f"{age:g} s": count for age, count in outdated.items()},
            "resources change while requests are made; each result is judged by itself, between request and answer",
        ),
    ]


def _architecture(rows: Sequence[Row]) -> list[Check]:
    found = []
    for model in (STATIC, DYNAMIC):
        times = {
            where: [row["time_ms"] for row in chosen(rows, model=model, architecture=where)]
            for where in (CENTRAL, DECENTRAL)
        }
        growth = {where: round(line[-1] / line[0], 2) for where, line in times.items()}
        found.append(
            _check(
                f"{model}: decentralised, the time is about constant in the size of results",
                growth[DECENTRAL] <= ABOUT_CONSTANT,
                {**growth, "ms": f"{times[DECENTRAL][0]} -> {times[DECENTRAL][-1]}"},
                f"the largest results over the smallest, at most {ABOUT_CONSTANT}: the requester's own broker reads "
                "and writes each resource of an answer, and routers pass it on, whoever hosts it",
            )
        )
        found.append(
            _check(
                f"{model}: decentralised, the time grows less with the size of results than centralised",
                growth[DECENTRAL] < growth[CENTRAL],
                growth,
                "one broker that does everything becomes full",
            )
        )
    for model in (STATIC_CONTINUOUS, DYNAMIC_CONTINUOUS):
        (central,) = chosen(rows, model=model, architecture=CENTRAL)
        (many,) = chosen(rows, model=model, architecture=DECENTRAL)
        found.append(
            _check(
                f"{model}: decentralised is faster",
                many["time_ms"] < central["time_ms"],
                {CENTRAL: central["time_ms"], DECENTRAL: many["time_ms"]},
                "only where the one broker is full: an event takes a link and a broker more per hop otherwise",
            )
        )
    return found
