"""What stores promise, checked: everything acknowledged is there, once, in order, the same for everyone.

In:    publishers and readers after a run, the logs as read at two brokers, what a live client got.
Out:   a Kept with counts, and the problems in words.
State: none.
Not here: the clients (store_clients.py), the runs (store_runs.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.independent.client import Delivery
from tests.independent.oracle import matches
from tests.independent.store_clients import Publisher, Reader, Taken
from tests.wire.stdlib_client import HEAD

Log = Sequence[Taken]


@dataclass
class Kept:
    """Counts of one run, and what was wrong."""

    acknowledged: int = 0
    lost: int = 0
    twice: int = 0
    misordered: int = 0
    faults: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        return (
            f"{self.acknowledged:,} acknowledged, {self.lost:,} lost, {self.twice:,} twice, "
            f"{self.misordered:,} misordered, {self.faults} faults"
        )


def judge(
    publishers: Sequence[Publisher],
    readers: Sequence[Reader],
    logs: Sequence[Mapping[str, Log]],
    watched: Sequence[Delivery],
) -> Kept:
    """``logs``: each store's log, read at several brokers."""
    kept = Kept()
    for publisher in publishers:
        kept.problems += publisher.problems
    for reader in readers:
        kept.problems += reader.problems
    if any(log != logs[0] for log in logs[1:]):
        kept.problems.append("two brokers gave different logs")
    for store, log in logs[0].items():
        _judge_log(kept, store, log, publishers)
    for reader in readers:
        _judge_reader(kept, reader, logs[0].get(reader.store, []))
    for (origin, sequence), count in Counter((one.origin, one.sequence) for one in watched).items():
        if count > 1:
            kept.twice += count - 1
            kept.problems.append(f"a live client got {sequence} of {origin:016x} {count} times")
    return kept


def _judge_log(kept: Kept, store: str, log: Log, publishers: Sequence[Publisher]) -> None:
    if [place for place, _ in log] != list(range(len(log))):
        kept.problems.append(f"{store} has gaps")
    numbers: dict[int, list[tuple[int, bytes]]] = {}
    for _, raw in log:
        _, _, _, _, origin, sequence, _ = HEAD.unpack_from(raw)
        numbers.setdefault(origin, []).append((sequence, raw))
    for publisher in publishers:
        chain = publisher.chains.get(store)
        if chain is None:
            continue
        sent = {number: raw for number, raw in publisher.sent.items() if f'"{store}"'.encode() in raw}
        came = numbers.get(publisher.origin, [])
        reliable = [(number, raw) for number, raw in came if number in publisher.sent]
        promised = [number for number in sent if number <= chain.acknowledged]
        kept.acknowledged += len(promised)
        there = Counter(number for number, _ in reliable)
        kept.lost += sum(not there[number] for number in promised)
        kept.twice += sum(count - 1 for count in Counter(number for number, _ in came).values())
        order = [number for number, _ in reliable]
        kept.misordered += sum(one > other for one, other in pairwise(order))
        if any(sent.get(number) != raw for number, raw in reliable):
            kept.problems.append(f"{store} has other bytes of {publisher.name}, or what was meant for another store")


def _judge_reader(kept: Kept, reader: Reader, log: Log) -> None:
    wanted = [one for one in log if matches(reader.pattern.split("/"), topic_of(one.raw).split("/"))]
    places = [one.position for one in reader.taken]
    if reader.keeps:
        kept.twice += len(places) - len(set(places))
        kept.misordered += sum(one > other for one, other in pairwise(places))
    missed = set(wanted) - set(reader.taken)
    kept.lost += len(missed)
    if missed:
        kept.problems.append(f"{reader.name} missed {len(missed)}, the first at {min(one.position for one in missed)}")
    if extra := set(reader.taken) - set(wanted):
        kept.problems.append(f"{reader.name} got {len(extra)} that the log has not, or that it did not want")


def topic_of(raw: bytes) -> str:
    length = HEAD.unpack_from(raw)[3]
    return raw[HEAD.size : HEAD.size + length].decode()
