"""Publications into a store: durable before acknowledged, once each, in the publisher's order."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import Reason
from heliograph.vault import CHANGES_MAX, Append
from heliograph.wire import stores
from heliograph.wire.frames import Flag, event
from tests.stores.ledge import INBOX, ORIGIN, Ledge

pytestmark = pytest.mark.req("N11")
STORE_INBOX = f"Inbox/{'c' * 16}/{'d' * 16}"


def attached(**settings: object) -> Ledge:
    ledge = Ledge(**settings)
    ledge.ask(stores.AttachPublisher(f"{ledge.id:016x}"))
    ledge.settle()
    ledge.frames.clear()
    return ledge


def kept(ledge: Ledge) -> list[int]:
    """The numbers in the log, in order."""
    log = ledge.vault.logs.get("main")
    numbers: list[int] = []
    for run in log.runs if log is not None else ():
        data, start = run.data, 0
        while start < len(data):
            numbers.append(int.from_bytes(data[start + 16 : start + 24], "little"))
            start += 4 + int.from_bytes(data[start : start + 4], "little")
    return numbers


def test_nothing_is_acknowledged_before_the_vault_says_that_it_is_durable() -> None:
    ledge = attached()
    ledge.deliver(ledge.reliable(1, 0), ledge.reliable(2, 1))
    assert ledge.acknowledgements() == []
    ledge.commit()
    assert ledge.acknowledgements() == [(2, b"")]
    assert kept(ledge) == [1, 2]


def test_the_fast_mode_acknowledges_at_once_and_says_so_in_its_name() -> None:
    ledge = attached(unsafe_ack=True)
    ledge.deliver(ledge.reliable(1, 0))
    assert ledge.acknowledgements() == [(1, b"")]


def test_what_is_sent_again_is_kept_once_and_acknowledged_again() -> None:
    ledge = attached()
    ledge.deliver(ledge.reliable(1, 0))
    ledge.settle()
    ledge.deliver(ledge.reliable(1, 0, Flag.REPEAT))
    ledge.settle()
    assert kept(ledge) == [1]
    assert ledge.acknowledgements() == [(1, b""), (1, b"")]


def test_a_repeat_is_kept_without_its_flag() -> None:
    ledge = attached()
    ledge.deliver(ledge.reliable(1, 0, Flag.REPEAT))
    ledge.settle()
    assert ledge.vault.logs["main"].runs[0].data == ledge.reliable(1, 0)


def test_what_is_missing_is_asked_for_and_order_holds() -> None:
    ledge = attached()
    ledge.deliver(ledge.reliable(1, 0))
    ledge.settle()
    ledge.deliver(ledge.reliable(3, 2), ledge.reliable(4, 3))
    number, body = ledge.acknowledgements()[-1]
    assert (number, json.loads(body)["missing"]) == (1, 2)
    ledge.deliver(ledge.reliable(2, 1, Flag.REPEAT))
    ledge.settle()
    assert kept(ledge) == [1, 2, 3, 4]
    assert ledge.acknowledgements()[-1] == (4, b"")


def test_what_stays_missing_is_asked_for_again() -> None:
    ledge = attached()
    ledge.deliver(ledge.reliable(9, 8))
    asked = len(ledge.acknowledgements())
    ledge.wait(1_000)
    assert len(ledge.acknowledgements()) == asked + 1


@pytest.mark.req("O6")
def test_a_chain_that_never_closes_is_asked_for_ever_more_rarely_and_given_up() -> None:
    ledge = attached()
    ledge.deliver(ledge.reliable(9, 8), ledge.reliable(10, 9))
    asked_at = [0.0]
    for tenth in range(1, 3_000):
        before = len(ledge.acknowledgements())
        ledge.wait(100)
        asked_at += [tenth / 10] * (len(ledge.acknowledgements()) - before)
    pauses = [after - before for before, after in pairwise(asked_at)]
    assert pauses[:5] == pytest.approx([0.3, 0.6, 1.2, 2.4, 4.8])
    assert max(pauses) <= 10.05
    assert 60 <= asked_at[-1] <= 71
    assert json.loads(ledge.acknowledgements()[-1][1])["refused"] == [[9, Reason.CHAIN_BROKEN]]
    report = ledge.store.report("overview")
    assert (report["early"], report["broken"], report["next"]) == (2, 2, 0)
    assert ledge.store._intake._waiting.bytes == 0
    ledge.deliver(ledge.reliable(8, 0), ledge.reliable(9, 8, Flag.REPEAT))
    ledge.settle()
    assert kept(ledge) == [8, 9], "what is repeated in order is kept as ever"


def test_progress_makes_a_store_ask_soon_again() -> None:
    ledge = attached()
    ledge.deliver(ledge.reliable(9, 8), ledge.reliable(5, 4))
    for _ in range(100):
        ledge.wait(100)
    ledge.deliver(ledge.reliable(4, 0))
    ledge.settle()
    asked = len(ledge.acknowledgements())
    ledge.wait(400)
    assert json.loads(ledge.acknowledgements()[-1][1])["missing"] == 8
    assert len(ledge.acknowledgements()) == asked + 1


@pytest.mark.req("O6")
@pytest.mark.parametrize("mark", [b"7", b'"x"', b"[]", b'["00"]', b'["00","1"]', b'{"store":1}', b'["00",1.5]'])
def test_a_publication_with_a_malformed_mark_is_refused_and_not_kept_as_a_plain_one(mark: bytes) -> None:
    ledge = attached()
    bad = event(b"t", b"", ORIGIN, 2, b'{"$q":%b}' % mark)
    ledge.deliver(ledge.reliable(1, 0), bad, ledge.reliable(3, 1))
    ledge.deliver(event(b"t", b"", 5, 1, b'{"$q":%b}' % mark))  # of a publisher that has not attached
    ledge.settle()
    assert kept(ledge) == [1, 3]
    assert ledge.store.report("overview")["malformed"] == 2
    told = [json.loads(body)["refused"] for _, body in ledge.acknowledgements() if b"refused" in body]
    assert told == [[[2, Reason.BODY_MALFORMED]]]


@pytest.mark.req("N15")
def test_a_store_whose_disk_is_slow_reads_nothing_from_its_broker_and_drops_nothing() -> None:
    ledge = attached(intake_bytes_max=1 << 16)
    payload = bytes(1_000)
    for number in range(1, 61):
        ledge.deliver(event(b"t", payload, ORIGIN, number))
        assert ledge.held == ([True] if ledge.store._intake.waiting_bytes >= 1 << 15 else [])
    assert ledge.held == [True]
    while ledge.commits:
        ledge.commit()
        assert ledge.held == ([True, False] if ledge.store._intake.waiting_bytes < 1 << 14 else [True])
    assert ledge.held == [True, False]
    assert kept(ledge) == [*range(1, 61)]
    assert ledge.store.report("overview")["holds"] == 1


@pytest.mark.req("N15", "O6")
def test_a_store_whose_disk_is_full_or_lost_reads_from_its_broker_to_answer_it() -> None:
    for reason in (Reason.VAULT_FULL, Reason.VAULT_FAILED):
        ledge = attached(intake_bytes_max=1 << 16)
        ledge.deliver(*(event(b"t", bytes(1_000), ORIGIN, number) for number in range(1, 61)))
        assert ledge.held == [True]
        ledge.fail(reason)
        assert ledge.held == [True, False]


@pytest.mark.req("N15", "O6")
def test_publications_that_wait_for_an_earlier_one_do_not_keep_that_one_out() -> None:
    ledge = attached(intake_bytes_max=1 << 16)
    frames = [ledge.reliable(number, number - 1) for number in range(1, 3_001)]
    ledge.deliver(*frames[1:])
    assert ledge.held == []
    ledge.deliver(frames[0])
    ledge.settle()
    assert kept(ledge) == [*range(1, 3_001)]


@pytest.mark.req("O6")
def test_a_chain_that_forks_is_refused_and_its_publisher_told() -> None:
    ledge = attached()
    ledge.deliver(ledge.reliable(1, 0), ledge.reliable(5, 1))
    ledge.settle()
    ledge.deliver(ledge.reliable(7, 3))
    number, body = ledge.acknowledgements()[-1]
    assert (number, json.loads(body)["refused"]) == (5, [[7, Reason.CHAIN_BROKEN]])
    assert kept(ledge) == [1, 5]


@pytest.mark.req("O6")
def test_a_chain_that_never_closes_takes_bounded_memory() -> None:
    ledge = attached()
    ledge.deliver(*(ledge.reliable(2 * number, 2 * number - 1) for number in range(1, 25_000)))
    chain = ledge.store._intake._chains[ORIGIN]
    assert chain.early_bytes < 8 << 20
    assert len(chain._early) <= 20_000
    assert kept(ledge) == []


def test_publications_for_another_store_are_left_to_it() -> None:
    ledge = attached()
    ledge.deliver(event(b"t", b"", ORIGIN, 1, b'{"$q":["00000000000000ff",0]}'))
    ledge.settle()
    assert kept(ledge) == []


def test_plain_publications_are_kept_without_acknowledgement_unless_the_settings_say_otherwise() -> None:
    ledge, strict = attached(), attached(keep="reliable")
    for each in (ledge, strict):
        each.deliver(event(b"t", b"", ORIGIN, 1))
        each.settle()
        assert each.acknowledgements() == []
    assert (kept(ledge), kept(strict)) == ([1], [])


@pytest.mark.parametrize("reason", [Reason.VAULT_FULL, Reason.REQUESTS_OVER_LIMIT])
def test_after_a_full_disk_or_too_much_that_waits_what_was_not_durable_is_asked_for(reason: Reason) -> None:
    ledge = attached()
    ledge.deliver(ledge.reliable(1, 0))
    ledge.settle()
    ledge.deliver(ledge.reliable(2, 1))
    ledge.fail(reason)
    number, body = ledge.acknowledgements()[-1]
    assert (number, json.loads(body)) == (1, {"missing": 2, "state": reason.word})
    ledge.wait(1_500)
    assert json.loads(ledge.acknowledgements()[-1][1]) == {"missing": 2}
    ledge.deliver(ledge.reliable(2, 1, Flag.REPEAT))
    ledge.settle()
    assert kept(ledge) == [1, 2]


def test_an_attaching_publisher_is_told_what_is_durable_once_everything_is() -> None:
    ledge = attached()
    ledge.deliver(ledge.reliable(1, 0))
    number = ledge.ask(stores.AttachPublisher(f"{ledge.id:016x}"))
    assert not [frame for frame in ledge.frames if frame.flags & 1]
    ledge.settle()
    assert ledge.answer(number) == (True, {"have": 1, "inbox": STORE_INBOX})


def test_a_store_that_starts_again_knows_what_it_has_of_each_publisher() -> None:
    ledge = attached()
    ledge.deliver(ledge.reliable(1, 0), ledge.reliable(2, 1))
    ledge.settle()
    again = Ledge()
    again.vault, id_before = ledge.vault, ledge.id
    again.store.tell(stores_opened(), again.now)
    again.settle()
    assert again.id == id_before
    again.deliver(again.reliable(2, 1, Flag.REPEAT), again.reliable(3, 2))
    again.settle()
    assert kept(again) == [1, 2, 3]
    assert [frame.topic.decode() for frame in again.frames if frame.flags & 4] == [INBOX] * len(
        again.acknowledgements()
    )


def stores_opened() -> object:
    from heliograph.vault import VaultOpened

    return VaultOpened("store", 0)


def test_a_commit_that_is_too_large_is_made_in_parts_each_with_its_own_numbers() -> None:
    ledge = attached()
    payload = b"x" * 900_000
    frames = [
        event(b"t", payload, ORIGIN, number, b'{"$q":["%016x",%d]}' % (ledge.id, number - 1)) for number in range(1, 25)
    ]
    ledge.deliver(*frames)
    assert len(ledge.commits) == 2
    ledge.commit()
    first = ledge.acknowledgements()[-1][0]
    assert 0 < first < 24
    assert kept(ledge) == list(range(1, first + 1))
    assert sum(len(change.data) for change in ledge.commits[0][1] if isinstance(change, Append)) <= 8 << 20
    ledge.fail(Reason.VAULT_FULL)
    ledge.wait(1_500)
    ledge.deliver(*frames)
    ledge.settle()
    assert kept(ledge) == list(range(1, 25))


@given(st.integers(0, 1 << 32), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_any_loss_repetition_and_order_of_arrival_ends_with_everything_once_in_order(seed: int, count: int) -> None:
    draw = random.Random(seed)
    ledge = attached()
    frames = {number: ledge.reliable(number, number - 1) for number in range(1, count + 1)}
    have = 0
    for _ in range(200):
        arriving = [frame for number, frame in frames.items() if number > have and draw.random() < 0.6]
        draw.shuffle(arriving)
        if draw.random() < 0.1 and ledge.commits:
            ledge.fail(Reason.VAULT_FULL)
        for start in range(0, len(arriving), 7):
            ledge.deliver(*arriving[start : start + 7])
        if draw.random() < 0.7:
            ledge.settle()
        ledge.wait(500)
        have = max([have, *(number for number, _ in ledge.acknowledgements())])
        assert have <= len(kept(ledge))
        if have == count:
            break
    ledge.settle()
    assert kept(ledge) == list(range(1, count + 1))


@pytest.mark.req("O6")
@given(st.binary(max_size=200), st.binary(max_size=60))
@settings(max_examples=100, deadline=None)
def test_no_publication_breaks_a_store(headers: bytes, payload: bytes) -> None:
    ledge = attached()
    ledge.deliver(event(b"t", payload, ORIGIN, 1, headers), event(b"t", payload, ORIGIN, 2, b'{"$q":%b}' % headers))
    ledge.settle()
    ledge.deliver(ledge.reliable(3, 0))
    ledge.settle()
    assert kept(ledge)[-1] == 3


def test_more_publishers_than_a_commit_may_name_take_several_commits() -> None:
    ledge = Ledge()
    count = CHANGES_MAX + 4_000
    for start in range(0, count, 1_000):
        ledge.deliver(*(ledge.reliable(1, 0, origin=ORIGIN + n) for n in range(start, min(count, start + 1_000))))
        ledge.read()
    assert len(ledge.commits) < 4, "the disk is slow, so all others wait"
    sizes = []
    while ledge.commits:
        sizes.append(len(ledge.commits[0][1]))
        ledge.commit()
    assert max(sizes) <= CHANGES_MAX
    assert len(kept(ledge)) == count
