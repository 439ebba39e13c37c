"""match: how long it takes to find the subscriptions that an event fits, among up to a million.

In:    nothing.
Out:   per workload and size: µs per event with all ids returned, insert and delete µs, bytes per subscription, the
       longest pause while the table grew, µs for the coverers of a box that nothing covers; topic filters beside them.
State: none.
Not here: workloads and their oracle (match_workloads.py), other ways to match (match_baselines.py), topics
       (match_topics.py).
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from time import thread_time
from typing import Any

from benchmarks import machine, match_topics
from benchmarks.field import say
from benchmarks.figures import budget, budget_lines, rounded, table
from benchmarks.generator import RunError
from benchmarks.match_baselines import Counting, Linear
from benchmarks.match_workloads import Event, Five, Twenty, Workload
from heliograph.matching.boxes import engines
from heliograph.matching.boxes.index import BoxIndex

SAYS = "events matched against up to a million subscriptions, µs per event with all ids; native, numpy and baselines"
WORKLOADS: dict[str, Callable[[int, int], Workload]] = {"W5": Five, "W20s": Twenty}
MILLION, SEED = 1_000_000, 1
QUICK = [("W5", 1_000), ("W5", 10_000), ("W5", 100_000), ("W20s", 1_000), ("W20s", 10_000), ("W20s", 100_000)]
SLOW = [("W5", MILLION), ("W20s", 100_000)]  # with numpy: left out of a quick run
EVENTS, REPEATS, CHECKED, SLICE = 200, 7, 4, 10_000
DELETED = 10_000
LIMITS_US = {10_000: 10.0, 100_000: 1e6 / 15_000}
MILLION_LIMITS_US = {"W5": 500.0, "W20s": 1e6 / 1_500}
HOW = [
    "times are CPU time of the one thread: on a core of its own they are the time that passes; per event the smallest "
    f"mean of {REPEATS} repetitions of {EVENTS} events, of all ids as one buffer",
    f"{CHECKED} events of every case: all ids equal those of an oracle that compares column by column",
    "insert = add(id, conjunction), from predicates to table; pause = the longest of all inserts",
    "bytes = what the table's memory holds per subscription; with numpy, the boxes as Python objects are not in it",
    "coverers = of a box that no subscription covers",
    "counting and linear are written in Python, for one event at a time, as one would first write them",
]


def run(quick: bool) -> dict[str, Any]:
    """All cases one after another, then topics."""
    cases = [*QUICK, ("W5", MILLION)] if quick else [*QUICK, ("W5", MILLION), ("W20s", MILLION)]
    rounds: list[dict[str, Any]] = []
    for name, size in cases:
        workload = WORKLOADS[name](size, SEED)
        for engine in ("native", "numpy"):
            if engines.is_there(engine) and not (quick and engine == "numpy" and (name, size) in SLOW):
                say(f"{name}, {size:,} subscriptions, {engine}")
                rounds.append({"case": name, "size": size, "system": engine, **_index(workload, size, engine)})
        if size <= (10_000 if quick else 100_000):
            say(f"{name}, {size:,} subscriptions, baselines")
            rounds += [{"case": name, "size": size, **figures} for figures in _baselines(workload, size)]
    say("topics, 1,000,000 filters")
    topics = match_topics.measure(MILLION, checked=1 if quick else 3)
    return {
        "name": "match",
        "unit": "µs of CPU time",
        "workloads": {name: WORKLOADS[name](1, SEED).says for name in WORKLOADS},
        "kernels": engines.in_use(),
        "ours": {"topics": {key: rounded(value) for key, value in topics.items()}},
        "rounds": [{key: rounded(x) if isinstance(x, float) else x for key, x in one.items()} for one in rounds],
        "budget": _budgets(rounds, topics),
        "quick": quick,
        "how": HOW,
        "machine": machine.facts(),
    }


def _index(workload: Workload, size: int, engine: str) -> dict[str, Any]:
    dice = random.Random(2)
    index = BoxIndex(engine=engine)
    insert_s = pause_s = 0.0
    for base in range(0, size, SLICE):
        conjunctions = workload.conjunctions(base, min(base + SLICE, size))
        began = last = thread_time()
        for id, conjunction in enumerate(conjunctions, base):
            index.add(id, conjunction, id % 24)
            now = thread_time()
            if now - last > pause_s:
                pause_s = now - last
            last = now
        insert_s += last - began
    events = [workload.event(dice) for _ in range(EVENTS)]
    _check(workload, events, lambda event: index.match(event).tolist(), engine)
    uncovered = workload.uncovered(dice)
    found: dict[str, Any] = {
        "event_us": _fastest(index.match, events),
        "links_us": _fastest(index.match_links, events),
        "ids": sum(len(index.match(event)) for event in events) / EVENTS,
        "insert_us": insert_s / size * 1e6,
        "bytes": index.report().size_bytes / size,
        "pause_ms": pause_s * 1e3,
        "coverers": len(index.coverers(uncovered)),
        "coverers_us": _fastest(index.coverers, [uncovered] * 10),
    }
    found["events_s"] = 1e6 / found["event_us"]
    gone = random.Random(3).sample(range(size), min(DELETED, size // 2))
    began = thread_time()
    for id in gone:
        index.remove(id)
    found["delete_us"] = (thread_time() - began) / len(gone) * 1e6
    return found


def _baselines(workload: Workload, size: int) -> list[dict[str, Any]]:
    dice = random.Random(2)
    conjunctions = workload.conjunctions(0, size)
    events = [workload.event(dice) for _ in range(CHECKED)]
    found = []
    for kind in (Counting, Linear):
        baseline = kind(conjunctions)
        _check(workload, events, baseline.match, kind.name)
        event_us = _fastest(baseline.match, events, repeats=2)
        found.append({"system": kind.name, "event_us": event_us, "events_s": 1e6 / event_us})
    return found


def _check(workload: Workload, events: Sequence[Event], match: Callable[[Event], list[int]], who: str) -> None:
    for event in events[:CHECKED]:
        if match(event) != workload.matching(event):
            raise RunError(f"match: {who} and the oracle of {workload.name} differ on {event}")


def _fastest(ask: Callable[[Any], object], questions: Sequence[Any], repeats: int = REPEATS) -> float:
    """µs per question, the smallest mean of some repetitions."""
    times = []
    gc.collect()
    for _ in range(repeats):
        began = thread_time()
        for question in questions:
            ask(question)
        times.append((thread_time() - began) / len(questions) * 1e6)
    return min(times)


def _budgets(rounds: Sequence[dict[str, Any]], topics: dict[str, Any]) -> list[dict[str, Any]]:
    native = {(one["case"], one["size"]): one for one in rounds if one["system"] == "native"}
    found = []
    for name in WORKLOADS:
        for size, limit in {**LIMITS_US, MILLION: MILLION_LIMITS_US[name]}.items():
            value = native[name, size]["event_us"] if (name, size) in native else None
            found.append(budget(f"{name}, {size:,} subscriptions, an event", value, limit, "µs"))
    for what, figure, limit, unit in (
        ("insert, the slowest case", "insert_us", 25, "µs"),
        ("delete, the slowest case", "delete_us", 5, "µs"),
        ("bytes per subscription, the largest case", "bytes", 250, "bytes"),
        ("the longest pause while growing", "pause_ms", 20, "ms"),
    ):
        found.append(budget(what, max((one[figure] for one in native.values()), default=None), limit, unit))
    millions = [one["coverers_us"] for (_, size), one in native.items() if size == MILLION]
    found.append(budget("coverers of an uncovered box among 1,000,000", max(millions, default=None), 500, "µs"))
    found.append(budget("a cached topic among 1,000,000 filters", topics["cached_us"], 5, "µs"))
    found.append(budget("a topic not cached among 1,000,000 filters", topics["uncached_us"], 50, "µs"))
    return found


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    figures = ("event_us", "events_s", "ids", "links_us", "insert_us", "delete_us", "bytes", "pause_ms", "coverers_us")
    head = ["workload", "subscriptions", "by", "µs/event", "events/s", "ids", "µs links", "µs insert", "µs delete"]
    rows = [
        [one["case"], f"{one['size']:,}", one["system"], *(one.get(figure) for figure in figures)]
        for one in result["rounds"]
    ]
    topics = result["ours"]["topics"]
    line = (
        f"topics: {topics['filters']:,.0f} filters, {topics['matches']:g} matches on average: "
        f"{topics['cached_us']:g} µs cached, {topics['uncached_us']:g} µs not, {topics['add_us']:g} µs to add"
    )
    return "\n".join([table([*head, "bytes", "ms pause", "µs coverers"], rows), "", line, "", budget_lines(result)])
