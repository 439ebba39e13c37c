"""The archive, killed at any moment while publications come and stores have faults, against an oracle of its own.

In:    seeds, which fix the network, the publishers and what happens; the moments depend on the machine.
Out:   claims: every publication that a store keeps becomes one row, with the same contents.
State: the processes of one network and one archive at a time.
Not here: the runs (archive_runs.py); `python -m tests.independent --archive 1..5` prints their figures.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.independent.archive_runs import Row, judge_archive, judge_payloads, with_archive
from tests.independent.store_clients import Taken
from tests.independent.store_oracle import Kept
from tests.many import cases
from tests.wire.stdlib_client import EVENT, pack

STORE = "00000000000000aa"


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S2")
@pytest.mark.parametrize(
    ("seed", "rounds"),
    cases(sweep=[(1, 2)], soak=[(2, 5), (3, 5)]),
)
def test_a_killed_archive_has_every_row_of_every_store_once(seed: int, rounds: int, tmp_path: Path) -> None:
    kept = with_archive(seed, tmp_path, rounds=rounds)
    print(kept.line)
    assert kept.acknowledged > rounds * 600
    assert (kept.lost, kept.twice, kept.misordered, kept.problems) == (0, 0, 0, [])


# The oracle sees each kind of fault that is planted into a right result.

LOG = [Taken(n, pack(EVENT, origin=5, sequence=n + 1, topic=b"x/1", headers=b"{}", payload=b"%d" % n)) for n in (0, 1)]
ROWS = [Row(STORE, n, "x/1", b"%d" % n, "{}", "0000000000000005", n + 1) for n in (0, 1)]


def planted(rows: list[Row]) -> tuple[int, int, int]:
    kept = Kept()
    judge_archive(kept, rows, {STORE: LOG})
    return kept.lost, kept.twice, len(kept.problems)


def test_planted_faults_are_seen() -> None:
    assert planted(ROWS) == (0, 0, 0)
    assert planted(ROWS[:1]) == (1, 0, 0)
    assert planted([*ROWS, ROWS[1]]) == (0, 1, 0)
    assert planted([ROWS[0], ROWS[1]._replace(value=b"2")]) == (0, 0, 1)
    assert planted([*ROWS, ROWS[1]._replace(position=2)]) == (0, 0, 1)


def test_planted_faults_in_tables_of_payloads_are_seen() -> None:
    def wrong(fitting: list[tuple[str, int, bytes]], others: list[tuple[str, int, bytes]]) -> int:
        kept = Kept()
        judge_payloads(kept, [ROWS[0]._replace(value=b"x" * 20), ROWS[1]], fitting, others)
        return len(kept.problems)

    good, bad = (STORE, 0, b"x" * 20), (STORE, 1, b"1")
    assert wrong([good], [bad]) == 0
    assert wrong([good, good], [bad]) == 1
    assert wrong([good], []) == 1
    assert wrong([], [bad, good]) == 2
