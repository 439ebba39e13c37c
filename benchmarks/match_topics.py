"""The topic table of match: a million filters of six levels.

In:    a size.
Out:   µs to look a topic up, cached and not; matches per topic; µs to add a filter.
State: none.
Not here: the table (src/heliograph/matching/topics.py), its cache in a broker (broker/routes.py).

30 % of the filters have one or two ``+``, 10 % end in ``#`` after four or five levels. The cache is what a broker's is:
a dict by topic.
"""

from __future__ import annotations

import random
from time import thread_time
from typing import Any

from benchmarks.generator import RunError
from heliograph.matching.topics import TopicTable
from heliograph.model.topics import matches

LEVELS, NAMES = 6, 10
TOPICS, REPEATS, SLICE = 2_000, 5, 10_000


def measure(size: int, checked: int) -> dict[str, Any]:
    """Build the table, check some topics against the plain definition, and time look-ups."""
    dice = random.Random(5)
    names = [[b"%c%d" % (97 + level, number) for number in range(NAMES)] for level in range(LEVELS)]
    patterns = [_pattern(dice, names) for _ in range(size)]
    table: TopicTable[int] = TopicTable()
    began = thread_time()
    for id, pattern in enumerate(patterns):
        table.add(pattern, id)
    add_us = (thread_time() - began) / size * 1e6
    topics = [_topic(dice, names) for _ in range(TOPICS)]
    for topic in topics[:checked]:
        if sorted(table.match(topic)) != [id for id, pattern in enumerate(patterns) if matches(pattern, topic)]:
            raise RunError(f"match: the topic table and the plain definition differ on {topic.decode()}")
    cache = {topic: table.match(topic) for topic in topics}
    return {
        "filters": size,
        "matches": sum(map(len, cache.values())) / TOPICS,
        "cached_us": _fastest(cache.__getitem__, topics),
        "uncached_us": _fastest(table.match, topics),
        "add_us": add_us,
    }


def _fastest(look_up: Any, topics: list[bytes]) -> float:
    times = []
    for _ in range(REPEATS):
        began = thread_time()
        for topic in topics:
            look_up(topic)
        times.append((thread_time() - began) / len(topics) * 1e6)
    return min(times)


def _topic(dice: random.Random, names: list[list[bytes]]) -> bytes:
    return b"/".join(dice.choice(level) for level in names)


def _pattern(dice: random.Random, names: list[list[bytes]]) -> bytes:
    parts = [dice.choice(level) for level in names]
    kind = dice.random()
    if kind < 0.3:
        for level in dice.sample(range(LEVELS), dice.randint(1, 2)):
            parts[level] = b"+"
    elif kind < 0.4:
        parts[dice.randint(4, 5) :] = [b"#"]
    return b"/".join(parts)
