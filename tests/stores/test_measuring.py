"""Measuring: a range of the log in pieces of so many bytes, without reading it."""

from __future__ import annotations

import pytest

from heliograph.errors import Reason
from heliograph.stores import measuring
from heliograph.stores.references import refer
from heliograph.vault import Append, Change, Read, RunsRead
from heliograph.wire import stores
from heliograph.wire.stores import MAIN
from tests.stores.ledge import Ledge

pytestmark = pytest.mark.req("N10")


def run(count: int, size: int) -> Append:
    return Append(MAIN, b"x" * size, count, 0, 0)


def ledge_with(*changes: Change) -> Ledge:
    ledge = Ledge()
    ledge.vault.commit(changes)
    return ledge


def pieces(ledge: Ledge, start: int, end: int, size: int, most: int = 1_024) -> tuple[list[tuple[int, int]], bool]:
    number = ledge.ask(stores.MeasureLog(f"{ledge.id:016x}", start, end, size, most))
    ledge.settle()
    is_granted, body = ledge.answer(number)
    assert is_granted, body
    return [(end, size) for end, size in body["pieces"]], body.get("more", False)


def test_pieces_have_whole_runs_and_no_more_than_asked_for_but_for_single_runs() -> None:
    ledge = ledge_with(run(10, 400), run(5, 500), run(1, 200), run(1, 2_000), run(4, 100))
    assert pieces(ledge, 0, 21, 1_000) == ([(15, 900), (16, 200), (17, 2_000), (21, 100)], False)
    assert pieces(ledge, 0, 21, 1_000, most=2) == ([(15, 900), (16, 200)], False)
    assert pieces(ledge, 3, 12, 10_000) == ([(12, 900)], False), "a run that is read in part counts whole"
    assert pieces(ledge, 17, 90, 50) == ([(21, 100), (90, 0)], False), "behind the end there is nothing"
    assert pieces(ledge, 5, 5, 50) == ([], False)


def test_publications_of_a_batch_count_where_they_are() -> None:
    part = "staged/x"
    staged = [Append(part, b"y" * size, 2, 0, 0) for size in (100, 2_000, 3_000, 50, 50)]
    ledge = ledge_with(run(10, 400), *staged, Append(MAIN, refer(part, 2), 6, 0, 0), run(1, 900))
    assert pieces(ledge, 0, 17, 3_000) == ([(12, 2_400), (14, 3_000), (17, 950)], False)
    assert pieces(ledge, 13, 16, 3_000) == ([(14, 3_000), (16, 50)], False)
    gone = ledge_with(Append(MAIN, refer("staged/gone", 0), 6, 0, 0), run(1, 900))
    assert pieces(gone, 0, 7, 3_000) == ([(7, 900)], False)


def test_a_long_log_takes_several_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "READS_MAX", 1)
    ledge = ledge_with(*(run(1, 10) for _ in range(3_000)))
    assert pieces(ledge, 0, 3_000, 10_000) == ([(1_000, 10_000), (1_024, 240)], True)


def test_pieces_are_those_of_an_obviously_right_twin() -> None:
    """Whatever is asked for, sizes add up, and no two neighbours would have fitted into one."""
    sizes = [(7 * n % 23 + 1, 31 * n % 977) for n in range(400)]
    ledge = ledge_with(*(run(count, size) for count, size in sizes))
    found = ledge.vault.find(Read(MAIN, bytes_max=4 << 20))
    assert isinstance(found, RunsRead)
    for step in (1, 500, 5_000, 100_000):
        told, more = pieces(ledge, 0, found.log.next, step)
        expected: list[tuple[int, int]] = []
        for each in found.runs:
            size = len(getattr(each, "data", b""))
            if expected and expected[-1][1] + size <= step:
                expected[-1] = (each.next, expected[-1][1] + size)
            else:
                expected.append((each.next, size))
        assert (told, more) == (expected, False)


def test_a_vault_that_fails_refuses_the_request() -> None:
    ledge = ledge_with(run(1, 10))
    number = ledge.ask(stores.MeasureLog(f"{ledge.id:016x}", 0, 1, 10))
    ticket, _ = ledge.reads.pop(0)
    ledge.store.failed(ticket, Reason.VAULT_DAMAGED, ledge.now)
    ledge.take()
    assert ledge.answer(number)[0] is False


@pytest.mark.req("O6")
def test_requests_take_turns_and_read_the_vault_one_at_a_time() -> None:
    ledge = ledge_with(*(run(1, 10) for _ in range(50)))
    whole = stores.MeasureLog(f"{ledge.id:016x}", 0, 50, 10)
    mallory = [ledge.ask(whole, entity="mallory") for _ in range(measuring.WAITING_OF_HOLDER_MAX + 1)]
    alice = ledge.ask(whole, entity="alice")
    assert len(ledge.reads) == 1
    is_granted, told = ledge.answer(ledge.ask(whole, entity="mallory"))
    assert (is_granted, told["reason"]) == (False, "requests_over_limit")
    while not any(frame.flags & 1 and frame.sequence == alice for frame in ledge.frames):
        assert len(ledge.reads) == 1
        ticket, query = ledge.reads.pop(0)
        ledge.store.done(ticket, ledge.vault.find(query), ledge.now)
        ledge.take()
    done = [number for number in mallory if any(f.flags & 1 and f.sequence == number for f in ledge.frames)]
    assert len(done) <= 2, "alice waited for the one under way, and hers came next"
    ledge.settle()
    assert all(ledge.answer(number)[0] for number in mallory)


def test_a_failed_measurement_lets_the_next_one_begin() -> None:
    ledge = ledge_with(run(1, 10))
    bad, good = (ledge.ask(stores.MeasureLog(f"{ledge.id:016x}", 0, 1, 10)) for _ in range(2))
    ticket, _ = ledge.reads.pop(0)
    ledge.store.failed(ticket, Reason.VAULT_DAMAGED, ledge.now)
    ledge.take()
    ledge.settle()
    assert not ledge.answer(bad)[0]
    assert ledge.answer(good)[0]


def test_many_that_end_at_once_are_no_recursion() -> None:
    ledge = ledge_with(run(1, 10))
    first = ledge.ask(stores.MeasureLog(f"{ledge.id:016x}", 0, 1, 10), entity="e")
    empty = [ledge.ask(stores.MeasureLog(f"{ledge.id:016x}", 1, 1, 10), entity=f"e{n}") for n in range(1_000)]
    ledge.settle()
    assert all(ledge.answer(number)[0] for number in (first, *empty))
