"""Live networks with stores, killed and stopped under load, against clients and an oracle that share no code with them.

In:    seeds, which fix the nodes, their links, the clients and the kinds of faults.
Out:   claims: what was acknowledged is kept, once, in order, and read by everyone alike; nothing is delivered twice.
State: the processes of one network at a time.
Not here: the runs (store_runs.py); `python -m tests.independent --stores 1..20` prints their figures.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.independent.client import Delivery
from tests.independent.store_clients import Publisher, Reader, Taken
from tests.independent.store_oracle import Kept, judge
from tests.independent.store_runs import with_stores
from tests.many import cases
from tests.wire.stdlib_client import EVENT, pack

STORE = "00000000000000aa"


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.req("N10", "N11")
@pytest.mark.parametrize("seed", cases(always=[1], sweep=[2, 11], soak=[4, 6, 19, 21]))
def test_what_stores_acknowledge_is_kept_once_in_order_and_read_by_everyone_alike(seed: int, tmp_path: Path) -> None:
    kept = with_stores(seed, tmp_path, count=800 if seed == 1 else 1_500, faults=4 if seed == 1 else 8)
    print(kept.line)
    assert kept.acknowledged > 1_500
    assert (kept.lost, kept.twice, kept.misordered, kept.problems) == (0, 0, 0, [])


# The oracle sees each kind of fault that is planted into a right result.


def publication(publisher: Publisher, number: int, previous: int) -> bytes:
    headers = b'{"$q":["%b",%d]}' % (STORE.encode(), previous)
    return pack(EVENT, origin=publisher.origin, sequence=number, topic=b"x/1", headers=headers, payload=b"%d" % number)


def planted(log_numbers: list[int], read_places: list[int], watched: list[int], acknowledged: int = 4) -> Kept:
    """What the oracle says of a publisher of 1 to 4, a store that has some of them, and a reader that got some."""
    publisher = Publisher("p", [], ["x/1"], 0)
    publisher.sent = {number: publication(publisher, number, number - 1) for number in range(1, 5)}
    publisher.chain_of(STORE).acknowledged = acknowledged
    log = [Taken(place, publisher.sent[number]) for place, number in enumerate(log_numbers)]
    reader = Reader("r", [], "x/#", "x/1", keeps=True)
    reader.store = STORE
    reader.taken = [log[place] for place in read_places]
    came = [Delivery((1,), publisher.origin, number, publisher.sent[number]) for number in watched]
    return judge([publisher], [reader], [{STORE: log}], came)


def test_a_right_result_is_right() -> None:
    kept = planted([1, 2, 3, 4], [0, 1, 2, 3], [2, 1, 4])
    assert (kept.acknowledged, kept.lost, kept.twice, kept.misordered, kept.problems) == (4, 0, 0, 0, [])


@pytest.mark.parametrize(
    ("log", "read", "watched", "lost", "twice", "misordered"),
    [
        ([1, 2, 4], [0, 1, 2], [], 1, 0, 0),
        ([1, 2, 3, 4], [0, 1, 3], [], 1, 0, 0),
        ([1, 2, 3, 3, 4], [0, 1, 2, 3, 4], [], 0, 1, 0),
        ([1, 2, 3, 4], [0, 1, 1, 2, 3], [], 0, 1, 0),
        ([1, 2, 3, 4], [0, 1, 2, 3], [2, 2], 0, 1, 0),
        ([1, 3, 2, 4], [0, 1, 2, 3], [], 0, 0, 1),
        ([1, 2, 3, 4], [0, 2, 1, 3], [], 0, 0, 1),
    ],
)
def test_the_oracle_counts_what_is_lost_twice_and_misordered(
    log: list[int], read: list[int], watched: list[int], lost: int, twice: int, misordered: int
) -> None:
    kept = planted(log, read, watched)
    assert (kept.lost, kept.twice, kept.misordered) == (lost, twice, misordered)


def test_what_was_not_acknowledged_may_be_missing() -> None:
    assert planted([1, 2], [0, 1], [], acknowledged=2).lost == 0
