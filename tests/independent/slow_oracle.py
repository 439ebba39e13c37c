"""What docs/how-to/slow-consumers.md promises of slow subscribers and of their neighbours, checked.

In:    how much each publisher published, what each subscriber got and was told, what links between brokers dropped.
Out:   a Slow with counts, and the problems in words.
State: none.
Not here: the subscribers (slow_reader.py, programs/slow_subscriber.py), the runs (slow_runs.py).

Every policy keeps the order and repeats nothing. What `drop_oldest` loses is counted, and the newest arrives. With
`disconnect` everything arrives up to a loss, which the subscriber is told. With `hold` nothing of the publishers that
opted in is lost; others' publications are treated as `drop_oldest` treats them. Subscribers that keep up get all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DROP, DISCONNECT, HOLD, FAST = "drop_oldest", "disconnect", "hold", "fast"
SLOW = "slow_consumer"


@dataclass(frozen=True)
class Got:
    """What one subscriber got and was told; ``between``: what links between brokers dropped on the way to it."""

    name: str
    policy: str
    got: Sequence[tuple[str, int]]
    lost: int
    told: str | None = None  # the reason with which it ended before its time
    is_finished: bool = True
    between: int = 0


@dataclass
class Slow:
    """Counts of one run, and what was wrong."""

    delivered: int = 0
    dropped: int = 0  # and counted
    disconnected: int = 0  # and told
    untold: int = 0
    held_lost: int = 0
    harmed: int = 0
    twice: int = 0
    misordered: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        return self.untold + self.held_lost + self.harmed + self.twice + self.misordered + len(self.problems)

    @property
    def figures(self) -> dict[str, int]:
        return {
            "delivered": self.delivered,
            "dropped and told": self.dropped,
            "disconnected and told": self.disconnected,
            "lost untold": self.untold,
            "lost with hold": self.held_lost,
            "lost by others": self.harmed,
            "twice": self.twice,
            "misordered": self.misordered,
            "problems": len(self.problems),
        }


def got_of(notes: Sequence[Mapping[str, Any]], name: str, policy: str, between: int = 0) -> Got:
    """What a subscriber wrote down."""
    kinds = {note["kind"]: note for note in notes}
    got = [(str(note["publisher"]), int(note["number"])) for note in notes if note["kind"] == "got"]
    lost = [int(note["lost"]) for note in notes if "lost" in note]
    told = kinds["told"]["reason"] if "told" in kinds else None
    return Got(name, policy, got, lost[-1] if lost else 0, told, "finished" in kinds, between)


def judge(kept: Slow, one: Got, sent: Mapping[str, int], held: Collection[str]) -> None:
    """``sent``: how many publications of each publisher the subscriber wants; ``held``: publishers that opted in."""
    kept.delivered += len(one.got)
    kept.twice += len(one.got) - len(set(one.got))
    kept.misordered += _misordered(one.got)
    there = set(one.got)
    missing = Counter(
        publisher for publisher, count in sent.items() for n in range(1, count + 1) if (publisher, n) not in there
    )
    if any(number not in range(1, sent.get(publisher, 0) + 1) for publisher, number in there):
        kept.problems.append(f"{one.name} got what nobody sent to it")
    if one.policy == DISCONNECT and one.told == SLOW:
        _judge_disconnected(kept, one)
        return
    if one.told is not None or not one.is_finished:
        kept.problems.append(f"{one.name} ended with {one.told!r}, finished: {one.is_finished}")
    if one.policy == FAST:
        kept.harmed += max(0, missing.total() - one.between)
        return
    if one.policy == HOLD:
        lost = max(0, sum(missing[publisher] for publisher in held) - one.between)
        kept.held_lost += lost
        kept.problems += [f"{one.name} lost {lost} of publishers that it may hold"] if lost else []
    if one.policy == DISCONNECT and one.lost:
        kept.problems.append(f"{one.name} lost {one.lost} and stayed")
    kept.dropped += min(missing.total(), one.lost)
    kept.untold += max(0, missing.total() - one.lost - one.between)
    if one.lost > missing.total():
        kept.problems.append(f"{one.name} was told of {one.lost} losses, and had {missing.total()}")


def _judge_disconnected(kept: Slow, one: Got) -> None:
    """What came is everything up to the end of the link."""
    kept.disconnected += 1
    highest: dict[str, int] = {}
    for publisher, number in one.got:
        highest[publisher] = max(number, highest.get(publisher, 0))
    holes = sum(highest.values()) - len(set(one.got))
    kept.untold += max(0, holes - one.between)


def _misordered(got: Sequence[tuple[str, int]]) -> int:
    highest: dict[str, int] = {}
    count = 0
    for publisher, number in got:
        count += number < highest.get(publisher, 0)
        highest[publisher] = max(number, highest.get(publisher, 0))
    return count
