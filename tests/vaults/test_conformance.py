"""Every back end, and the simulated vault, do what a plain model does: the same commits, the same contents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from heliograph.errors import Reason
from heliograph.live.vaults.backend import VaultError
from heliograph.vault import (
    PAGE_MAX,
    READ_RUNS_MAX,
    SMALL_BYTES_MAX,
    TAIL_BYTES,
    TAIL_RUNS,
    TRIM_RUNS_MAX,
    Append,
    Change,
    Damage,
    Delete,
    Drop,
    Log,
    Measure,
    Put,
    Read,
    ReadKeys,
    ReadLogs,
    Run,
    RunSize,
    TailDamage,
    Trim,
)
from tests.vaults.model import Model
from tests.vaults.subjects import PostgresSubject, SimSubject, SqliteSubject, Subject, dump, pages_of_keys

LOGS = ["a", "a/b\x00", "é"]
KEYS = ["k", "k/1", "k/2", "kk", "ü", "\U0001f600", "l"]
times = st.integers(-3, 12)
positions = st.integers(0, 12)
appends = st.builds(Append, st.sampled_from(LOGS), st.binary(max_size=30), st.integers(1, 4), times, times)
KINDS = {
    "append": appends,
    "put": st.builds(Put, st.sampled_from(KEYS), st.binary(max_size=10)),
    "delete": st.builds(Delete, st.sampled_from(KEYS)),
    "trim": st.builds(Trim, st.sampled_from(LOGS), positions),
    "drop": st.just(Drop("é")),
}
WEIGHED = ["append"] * 8 + ["trim"] * 4 + ["put"] * 2 + ["delete", "drop"]
changes = st.sampled_from(WEIGHED).flatmap(lambda kind: KINDS[kind])
commits = st.lists(st.lists(changes, min_size=1, max_size=6), min_size=1, max_size=4)


class Maker:
    """Makes vaults of one kind, and ends them."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._made: list[Any] = []
        self.kind: str = request.param

    def __call__(self, **options: Any) -> Any:
        if self.kind == "postgres":
            subject: Any = PostgresSubject(self._request.getfixturevalue("postgres"), **options)
        else:
            subject = {"sim": SimSubject, "sqlite": SqliteSubject}[self.kind](**options)
        self._made.append(subject)
        return subject

    def end(self) -> None:
        while self._made:
            self._made.pop().end()


@pytest.fixture(params=["sim", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest) -> Iterator[Maker]:
    maker = Maker(request)
    yield maker
    maker.end()


def run_of(position: int, append: Append) -> Run:
    return Run(position, append.count, append.first_ns, append.last_ns, append.data)


def runs(subject: Subject, *query: Any, **options: Any) -> list[Any]:
    return list(subject.read(Read(*query, **options)).runs)  # type: ignore[union-attr]


def test_a_vault_is_what_its_model_is(make: Maker) -> None:
    class Vaults(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        @initialize()
        def begin(self) -> None:
            self.subject = make()

        @rule(commits=commits)
        def commit(self, commits: list[list[Change]]) -> None:
            assert self.subject.commit(commits) == [self.model.commit(changes) for changes in commits]

        @rule(log=st.sampled_from(LOGS), start=positions)
        def read_from_a_position(self, log: str, start: int) -> None:
            expected = self.model.logs[log].from_position(start) if log in self.model.logs else []
            assert runs(self.subject, log, start) == expected

        @rule(log=st.sampled_from(LOGS), since_ns=times)
        def read_since_a_time(self, log: str, since_ns: int) -> None:
            expected = self.model.logs[log].since(since_ns) if log in self.model.logs else []
            assert runs(self.subject, log, since_ns=since_ns) == expected

        @rule(log=st.sampled_from(LOGS), start=positions, small=st.sampled_from([0, 5, SMALL_BYTES_MAX]))
        def measure(self, log: str, start: int, small: int) -> None:
            expected = self.model.logs[log].from_position(start) if log in self.model.logs else []
            assert self.subject.read(Measure(log, start, small)).runs == tuple(  # type: ignore[union-attr]
                RunSize(run.position, run.count, len(run.data), run.data if len(run.data) <= small else b"")
                for run in expected
            )

        @rule(prefix=st.sampled_from(["", "k", "k/", "ü", "x"]))
        def read_keys(self, prefix: str) -> None:
            expected = [pair for pair in self.model.dump()["keys"] if pair[0].startswith(prefix)]
            assert pages_of_keys(self.subject, prefix) == expected

        @rule()
        def reopen(self) -> None:
            self.subject.reopen()

        @rule(unfinished=commits)
        def crash(self, unfinished: list[list[Change]]) -> None:
            """Of what was under way, a beginning is there, each commit whole."""
            self.subject.crash(unfinished)
            found = dump(self.subject)
            prefixes = [self.model.after(unfinished[:count]) for count in range(len(unfinished) + 1)]
            self.model = next(model for model in prefixes if model.dump() == found)

        @invariant()
        def is_the_same(self) -> None:
            assert dump(self.subject) == self.model.dump()

        def teardown(self) -> None:
            make.end()

    count = max(3, settings.default.max_examples // (8 if make.kind == "postgres" else 2))  # schemas are slow
    run_state_machine_as_test(Vaults, settings=settings(max_examples=count, stateful_step_count=12))


def test_nothing_is_in_a_new_vault(make: Maker) -> None:
    subject = make()
    assert dump(subject) == {"logs": [], "keys": []}
    found = subject.read(Read("none", 7))
    assert (found.runs, found.log) == ((), Log("none"))


def test_done_tells_positions_and_what_a_trim_left(make: Maker) -> None:
    subject = make()
    first, second = Append("log", b"abc", 3, 1, 2), Append("log", b"de", 2, 5, 6)
    done = subject.commit([[first, second, Trim("log", 4)], [Append("other", b"x", 1, 0, 0)]])

    assert [each.positions for each in done] == [(0, 3), (0,)]
    assert done[0].trimmed == (Log("log", first=3, next=5, runs=1, bytes=2, first_ns=5, last_ns=6),)


def test_positions_are_never_used_again_unless_the_log_is_dropped(make: Maker) -> None:
    subject = make()
    append = Append("log", b"abc", 3, 1, 2)
    subject.commit([[append, Trim("log", 100)]])
    subject.reopen()
    (done,) = subject.commit([[append]])
    assert done.positions == (3,)
    (done,) = subject.commit([[Drop("log"), append]])
    assert done.positions == (0,)
    assert runs(subject, "log") == [run_of(0, append)]


def test_a_long_log_is_trimmed_and_read_in_slices(make: Maker) -> None:
    subject = make()
    append = Append("log", b"x", 2, 0, 0)
    subject.commit([[append] * (READ_RUNS_MAX + 10)])

    assert len(runs(subject, "log")) == READ_RUNS_MAX
    end = 2 * (READ_RUNS_MAX + 10)
    (done,) = subject.commit([[Trim("log", end)]])
    assert done.trimmed[0].first == 2 * TRIM_RUNS_MAX
    (done,) = subject.commit([[Trim("log", end)]])
    assert done.trimmed[0] == Log("log", first=end, next=end)


def test_a_read_ends_at_its_bytes_and_gives_one_run_in_any_case(make: Maker) -> None:
    subject = make()
    subject.commit([[Append("log", bytes(size), 1, 0, 0) for size in (10, 20, 30, 0)]])
    assert [len(run.data) for run in runs(subject, "log", bytes_max=30)] == [10, 20]
    assert [len(run.data) for run in runs(subject, "log", bytes_max=1)] == [10]
    assert [len(run.data) for run in runs(subject, "log", 2, bytes_max=1)] == [30]
    assert runs(subject, "log", 4) == []


def test_a_read_gives_all_that_fits_however_many_runs_that_are(make: Maker) -> None:
    subject = make()
    subject.commit([[Append("log", bytes(10), 1, 0, 0) for _ in range(40)]])
    for fitting in range(1, 41):
        assert len(runs(subject, "log", bytes_max=10 * fitting)) == fitting
        assert [run.position for run in runs(subject, "log", 40 - fitting)] == list(range(40 - fitting, 40))


def test_many_keys_and_logs_come_in_pages(make: Maker) -> None:
    subject = make()
    subject.commit([[Put(f"k{n:05}", b"") for n in range(PAGE_MAX + 5)]])
    subject.commit([[Append(f"log{n:05}", b"", 1, 0, 0) for n in range(PAGE_MAX + 5)]])
    page = subject.read(ReadKeys("k", bytes_max=1 << 20))
    assert (len(page.pairs), page.more) == (PAGE_MAX, True)
    page = subject.read(ReadKeys("k", page.pairs[-1][0], bytes_max=1 << 20))
    assert (len(page.pairs), page.more) == (5, False)
    assert subject.read(ReadLogs("log")).more
    assert len(subject.read(ReadLogs("log", f"log{PAGE_MAX - 1:05}")).logs) == 5


def test_a_large_run_comes_back_as_it_was(make: Maker) -> None:
    subject = make()
    append = Append("log", bytes(range(256)) * 4096, 1000, 1, 2)
    subject.commit([[append]])
    subject.reopen()
    assert runs(subject, "log", 500) == [run_of(0, append)]


def test_a_damaged_run_is_told_with_its_positions_and_the_others_are_read(make: Maker) -> None:
    subject = make()
    appends = [Append("log", bytes([n]), 3, n, n) for n in range(4)]
    subject.commit([appends])
    subject.damage("log", 3)
    subject.damage("log", 9)

    first, second, third, fourth = runs(subject, "log")
    assert [first, third] == [run_of(0, appends[0]), run_of(6, appends[2])]
    assert second == Damage(3, 3, "checksum wrong")
    assert fourth == Damage(9, 3, "checksum wrong")
    assert runs(subject, "log", 4)[0].position == 3
    (done,) = subject.commit([[Trim("log", 6)]])
    assert done.trimmed[0].first == 6


def test_the_tail_is_checked_when_a_vault_is_opened(make: Maker) -> None:
    subject = make()
    count = TAIL_RUNS + 2
    subject.commit([[Append("log", bytes([n]) * 40, 3, n, n) for n in range(count)]])
    subject.commit([[Append("other", b"o", 1, 99, 99), Append("third", bytes(TAIL_BYTES), 1, 1, 1)]])
    subject.commit([[Append("third", bytes(TAIL_BYTES), 1, 1, 1)]])
    subject.reopen()
    assert subject.damaged() == ()
    for log, position in (("log", 0), ("log", 3 * 5), ("log", 3 * (count - 1)), ("other", 0), ("third", 0)):
        subject.damage(log, position)
    subject.reopen()
    assert subject.damaged() == (  # not what is older than the tail: that is found when it is read
        TailDamage("other", 0, 1, "checksum wrong"),
        TailDamage("log", 3 * 5, 3, "checksum wrong"),
        TailDamage("log", 3 * (count - 1), 3, "checksum wrong"),
    )
    (done,) = subject.commit([[Append("log", b"new", 1, 0, 0)]])
    assert done.positions == (3 * count,), "positions of damaged records are not used again"
    assert [each.position for each in runs(subject, "log") if isinstance(each, Damage)] == [0, 15, 3 * (count - 1)]


def test_a_damaged_value_is_told(make: Maker) -> None:
    subject = make()
    subject.commit([[Put("good", b"1"), Put("bad", b"2")]])
    subject.damage_key("bad")
    assert pages_of_keys(subject) == [("bad", None), ("good", b"1")]
    subject.commit([[Put("bad", b"3")]])
    assert pages_of_keys(subject) == [("bad", b"3"), ("good", b"1")]


def test_a_full_vault_changes_nothing_can_be_read_and_takes_more_when_there_is_room(make: Maker) -> None:
    subject = make(bytes_max=400_000)
    append = Append("log", bytes(50_000), 1, 0, 0)
    kept = 0

    def fill() -> None:
        nonlocal kept
        while kept < 9:
            subject.commit([[Put("count", b"%d" % (kept + 1)), append]])
            kept += 1

    with pytest.raises(VaultError) as refused:
        fill()
    assert refused.value.reason is Reason.VAULT_FULL
    assert 1 < kept < 9
    assert pages_of_keys(subject) == [("count", b"%d" % kept)]
    assert len(runs(subject, "log", bytes_max=1 << 20)) == kept

    subject.commit([[Trim("log", kept - 1)]])
    (done,) = subject.commit([[append]])
    assert done.positions == (kept,)
    subject.reopen()
    assert [run.position for run in runs(subject, "log", bytes_max=1 << 20)] == [kept - 1, kept]
