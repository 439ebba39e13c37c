"""Readings: what matches, within the credit, each position once, from where the reader stands."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import Reason
from heliograph.model.origin import origin_of
from heliograph.notes import RecordsDamaged
from heliograph.sim.storing.notebook import Notebook
from heliograph.sim.storing.reader import DurableReader
from heliograph.stores.channel import CONDITION_WORK, TOPIC_WORK
from heliograph.stores.channels import WORK_MAX
from heliograph.stores.gathering import RUN_BYTES
from heliograph.stores.repeats import HOLDER_FREE, HOLDER_PER_S, READING_FREE, READING_PER_S
from heliograph.vault import READ_RUNS_MAX, TailDamage, Trim, VaultOpened
from heliograph.wire import stores
from heliograph.wire.frames import Frame, event
from heliograph.wire.limits import FRAME_BYTES_MAX
from tests.stores.ledge import INBOX, ORIGIN, Ledge

pytestmark = pytest.mark.req("N10")
OTHER = "Inbox/00000000000000aa/00000000000000ee"


def filled(count: int = 10, **settings: Any) -> Ledge:
    ledge = Ledge(**settings)
    for number in range(1, count + 1):
        topic = b"even" if number % 2 == 0 else b"odd"
        ledge.deliver(event(topic, b"%d" % number, ORIGIN, number, b'{"n":%d}' % number))
        ledge.settle()
    ledge.frames.clear()
    return ledge


def opened(ledge: Ledge, **asked: Any) -> tuple[bool, dict[str, Any]]:
    number = ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 1, **asked))
    ledge.settle()
    return ledge.answer(number)


def spans(ledge: Ledge) -> list[tuple[int, int, tuple[int, ...]]]:
    found = [stores.span_of(frame) for frame in ledge.frames if not frame.flags]
    return [(before, after, tuple(before + offset for offset in offsets)) for _, before, after, offsets in found]


def positions(ledge: Ledge) -> list[int]:
    return [position for _, _, some in spans(ledge) for position in some]


def notices(ledge: Ledge) -> list[dict[str, Any]]:
    return [json.loads(frame.payload) for frame in ledge.frames if frame.flags & stores.StoredFlag.NOTICE]


def credit(ledge: Ledge, at: int, **more: Any) -> None:
    ledge.ask(stores.GiveCredit(f"{ledge.id:016x}", 1, at, **more))
    ledge.settle()


def test_a_replay_begins_with_the_first_and_ends_where_it_was_told() -> None:
    ledge = filled()
    assert opened(ledge, end=7) == (True, {"channel": 1, "position": 0, "first": 0, "next": 10})
    assert positions(ledge) == list(range(7))
    assert notices(ledge) == [{"channel": 1, "next": 7}]


def test_a_filter_and_a_condition_choose_and_the_frames_cover_everything() -> None:
    ledge = filled()
    opened(ledge, filter="even", language="predicates", where="n > 4")
    assert positions(ledge) == [5, 7, 9]
    assert spans(ledge)[0][0] == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text("eo", min_size=1, max_size=5), min_size=1, max_size=12), st.booleans())
def test_positions_are_those_of_what_matches_in_runs_of_any_form(runs: list[str], has_condition: bool) -> None:
    ledge = Ledge()
    kept = "".join(runs)
    number = 0
    for run in runs:
        frames = [event(topic.encode(), b"", ORIGIN, number + at, b'{"n":1}') for at, topic in enumerate(run, 1)]
        number += len(run)
        ledge.deliver(*frames)
        ledge.settle()
    ledge.frames.clear()
    opened(ledge, filter="e", **({"language": "predicates", "where": "n = 1"} if has_condition else {}))
    assert positions(ledge) == [position for position, topic in enumerate(kept) if topic == "e"]


def test_no_frame_is_larger_than_readers_accept_however_small_publications_are() -> None:
    ledge = Ledge()
    small = [event(b"t", b"", ORIGIN, number) for number in range(1, 16_384)]
    large = event(b"t", bytes(RUN_BYTES - len(b"".join(small)) - 29), ORIGIN, 16_384)  # the run has its largest size
    ledge.deliver(*small, large)
    ledge.settle()
    ledge.frames.clear()
    opened(ledge, window=20_000)
    assert positions(ledge) == list(range(16_384))
    assert max(len(frame.raw) for frame in ledge.frames) <= FRAME_BYTES_MAX


def test_no_more_than_the_window_is_under_way_and_credit_brings_more() -> None:
    ledge = filled()
    opened(ledge, window=4)
    assert positions(ledge) == [0, 1, 2, 3]
    credit(ledge, 2, window=4)
    assert positions(ledge) == [0, 1, 2, 3]
    credit(ledge, 4, window=4)
    assert positions(ledge) == list(range(8))


def test_what_was_lost_is_sent_again_from_where_the_reader_stands() -> None:
    ledge = filled()
    opened(ledge, window=4)
    ledge.frames.clear()
    credit(ledge, 1, window=4, again=True)
    assert positions(ledge) == [1, 2, 3, 4]


def test_what_does_not_come_for_a_second_is_sent_again_without_being_asked() -> None:
    ledge = filled()
    opened(ledge, window=4)
    ledge.frames.clear()
    ledge.wait(1_500)
    credit(ledge, 2, window=4)
    assert positions(ledge) == []  # it came nearer just now
    ledge.wait(1_500)
    credit(ledge, 2, window=4)
    assert positions(ledge) == [2, 3, 4, 5]


def reopened(ledge: Ledge) -> Ledge:
    """The same vault after a restart: nothing of it is in memory, so that every read takes a while."""
    again = Ledge()
    again.vault = ledge.vault
    again.store.tell(VaultOpened("store", 0), again.now)
    again.settle()
    again.frames.clear()
    return again


def test_a_reading_that_goes_back_while_the_vault_reads_misses_nothing() -> None:
    ledge = reopened(filled(READ_RUNS_MAX + 10))
    opened(ledge, window=READ_RUNS_MAX)
    ledge.frames.clear()
    ledge.ask(stores.GiveCredit(f"{ledge.id:016x}", 1, READ_RUNS_MAX, window=4))
    assert ledge.reads, "it has reached the end of what was read at once"
    ledge.ask(stores.GiveCredit(f"{ledge.id:016x}", 1, 5, window=4, again=True))
    ledge.settle()
    assert positions(ledge) == [5, 6, 7, 8]


def test_a_reader_hears_what_retention_removed_while_the_vault_read() -> None:
    ledge = reopened(filled())
    ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 1))
    [(ticket, query)] = ledge.reads
    ledge.reads.clear()
    ledge.vault.commit([Trim("main", 3)])
    ledge.store.done(ticket, ledge.vault.find(query), ledge.now)
    ledge.settle()
    assert [each["gap"] for each in notices(ledge)] == [[0, 3]]
    assert positions(ledge) == list(range(3, 10))


def test_a_reader_that_has_caught_up_hears_what_comes() -> None:
    ledge = filled(3)
    opened(ledge)
    ledge.frames.clear()
    ledge.deliver(event(b"t", b"", ORIGIN, 4))
    ledge.settle()
    assert spans(ledge) == [(3, 4, (3,))]


def test_a_name_goes_on_where_it_was_acknowledged_and_skips_what_was_acknowledged_out_of_order() -> None:
    ledge = filled()
    assert opened(ledge, name="n", start="first")[1]["created"]
    ledge.ask(stores.AckPositions(f"{ledge.id:016x}", "n", 3, [(5, 7)]))
    ledge.settle()
    ledge.frames.clear()
    assert opened(ledge, name="n")[1]["position"] == 3
    assert positions(ledge) == [3, 4, 7, 8, 9]


def test_a_new_name_begins_with_what_comes_from_now_on() -> None:
    ledge = filled()
    assert opened(ledge, name="n")[1]["position"] == 10


def test_a_reading_by_time_begins_with_the_run_that_reached_it() -> None:
    ledge = filled(3)
    ledge.wait(60_000)
    ledge.deliver(event(b"t", b"", ORIGIN, 4))
    ledge.settle()
    at_us = ledge.vault.logs["main"].runs[-1].first_ns // 1_000
    opened(ledge, since_us=at_us)
    assert positions(ledge) == [3]


def test_a_reading_by_time_and_position_begins_with_the_later() -> None:
    ledge = filled(3)
    ledge.wait(60_000)
    ledge.deliver(event(b"t", b"", ORIGIN, 4))
    ledge.settle()
    at_us = ledge.vault.logs["main"].runs[-1].first_ns // 1_000
    assert opened(ledge, position=1, since_us=at_us)[1]["position"] == 3
    assert opened(ledge, position=1, since_us=0)[1]["position"] == 1
    assert opened(ledge, position=1, since_us=at_us, end=2)[1]["position"] == 3
    assert notices(ledge)[-1] == {"channel": 1, "next": 3}, "nothing of that range was stored so late"


def test_a_reader_that_asks_is_told_when_publications_were_stored() -> None:
    ledge = filled(3)
    ledge.wait(60_000)
    ledge.deliver(event(b"t", b"", ORIGIN, 4))
    ledge.settle()
    ledge.frames.clear()
    runs = ledge.vault.logs["main"].runs
    opened(ledge, times=True)
    (told,) = [notice["taken"] for notice in notices(ledge)]
    assert told[0] == [0, runs[0].last_ns // 1_000]
    assert told[-1] == [3, runs[-1].last_ns // 1_000]
    assert all(later[1] - earlier[1] >= 1_000 for earlier, later in pairwise(told))
    kinds = [frame.flags for frame in ledge.frames if frame.topic == INBOX.encode() and frame.flags in (0, 8)]
    assert kinds == [8, 0], "the times come before their frame"


def test_the_time_that_is_told_is_the_one_that_is_kept_however_long_the_commit_took() -> None:
    ledge = filled(3)
    for number in (4, 5):
        ledge.deliver(event(b"t", b"", ORIGIN, number))
        ledge.wait(50)  # the vault is slow
        ledge.settle()
    ledge.frames.clear()
    runs = ledge.vault.logs["main"].runs
    assert [run.last_ns for run in runs[-2:]] == sorted({run.last_ns for run in runs[-2:]})
    opened(ledge, times=True, position=3)  # what was stored last is still in memory
    (told,) = [notice["taken"] for notice in notices(ledge)]
    assert told == [[run.position, run.last_ns // 1_000] for run in runs[-2:]]
    for position, at_us in told:
        assert opened(ledge, since_us=at_us)[1]["position"] <= position
        ledge.frames.clear()


def test_the_pace_of_a_replay_is_that_of_the_log() -> None:
    ledge = filled(1)
    ledge.wait(10_000)
    ledge.deliver(event(b"t", b"", ORIGIN, 4))
    ledge.settle()
    opened(ledge, pace=2.0)
    assert positions(ledge) == [0]
    ledge.wait(4_900)
    ledge.settle()
    assert positions(ledge) == [0]
    ledge.wait(200)
    ledge.settle()
    assert positions(ledge) == [0, 1]


def test_a_pace_next_to_zero_waits_and_harms_nothing() -> None:
    ledge = filled(1)
    ledge.wait(10_000)
    ledge.deliver(event(b"t", b"", ORIGIN, 4))
    ledge.settle()
    opened(ledge, pace=5e-324)
    assert positions(ledge) == [0]


def test_a_pace_next_to_zero_harms_nothing_where_times_go_back() -> None:
    ledge = filled(1)
    for back in (0, 5_000_000_000):
        ledge.store.clock(100_000_000_000 - back, ledge.now)
        ledge.deliver(event(b"t", b"", ORIGIN, 4 + back % 7))
        ledge.settle()
    opened(ledge, pace=1e-300)
    assert positions(ledge)[:1] == [0]


@pytest.mark.req("O6")
def test_an_acknowledgement_of_nothing_new_costs_no_commit() -> None:
    ledge = filled()
    assert opened(ledge, name="n", start="first")[1]["created"]
    ledge.ask(stores.AckPositions(f"{ledge.id:016x}", "n", 3, [(5, 7)]))
    ledge.settle()
    again = [ledge.ask(stores.AckPositions(f"{ledge.id:016x}", "n", before, [(5, 6)])) for before in (0, 3)]
    assert ledge.commits == []
    assert [ledge.answer(number) for number in again] == [(True, ledge.answer(again[0])[1])] * 2
    assert ledge.answer(again[0])[1]["before"] == 3
    ledge.wait(2 * 3_600_000)
    ledge.ask(stores.AckPositions(f"{ledge.id:016x}", "n", 3))
    assert len(ledge.commits) == 1, "once in an hour it is noted that the name is in use"


def test_a_name_that_is_opened_elsewhere_is_taken_over() -> None:
    ledge = filled()
    opened(ledge, name="n", start="first")
    ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 5, "n"), inbox=OTHER)
    ledge.settle()
    assert notices(ledge)[-1]["code"] == Reason.TAKEN_OVER
    assert [frame.topic.decode() for frame in ledge.frames if frame.flags & 8] == [INBOX]


@pytest.mark.req("O6")
def test_damage_is_told_as_a_gap_with_its_positions_and_the_reading_goes_on() -> None:
    ledge = filled(5)
    run = ledge.vault.logs["main"].runs[2]
    ledge.vault.logs["main"].damaged[run.position] = None
    ledge.store._tail.open(ledge.store._tail.log)  # as after a start: nothing is in memory
    opened(ledge)
    assert positions(ledge) == [0, 1, 3, 4]
    assert [(notice["gap"], notice["code"]) for notice in notices(ledge)] == [([2, 3], Reason.VAULT_DAMAGED)]


@pytest.mark.req("O6")
def test_damage_at_the_end_of_a_log_is_noted_and_counted_when_a_store_starts() -> None:
    ledge = filled(3)
    ledge.store.tell(VaultOpened("store", 0, (TailDamage("main", 2, 1, "checksum wrong"),)), ledge.now)
    notes = [note for note in ledge.store.take().notes if isinstance(note, RecordsDamaged)]
    assert notes == [RecordsDamaged("store", "main", 2, 1, "checksum wrong")]
    assert ledge.store.report("overview")["damaged"] == 1


def test_while_its_broker_does_not_read_a_store_sends_no_readings_but_acknowledges() -> None:
    ledge = filled(5)
    ledge.store.press(1, True, ledge.now)
    opened(ledge)
    assert positions(ledge) == []
    ledge.store.press(1, False, ledge.now)
    ledge.settle()
    assert positions(ledge) == [0, 1, 2, 3, 4]


def test_the_report_tells_how_long_commits_take() -> None:
    ledge = Ledge()
    for number in range(1, 101):
        ledge.deliver(event(b"t", b"", ORIGIN, number))
        ledge.now += 50_000_000 if number == 7 else 2_000_000
        ledge.settle()
    report = ledge.store.report("overview")
    assert (report["commit_us"], report["commit_us_p50"], report["commit_us_max"]) == (2_000, 2_000, 50_000)
    assert (report["commit_us_sum"], report["commits_durable"]) == (99 * 2_000 + 50_000, 100)
    assert report["commit_us_p99"] == 50_000


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (lambda id: stores.OpenChannel(id, 1, position=11), Reason.POSITION_UNKNOWN),
        (lambda id: stores.OpenChannel(id, 1, "a b"), Reason.BODY_MALFORMED),
        (lambda id: stores.OpenChannel(id, 1, filter="a/#/b"), Reason.FILTER_INVALID),
        (lambda id: stores.OpenChannel(id, 1, language="sql", where="(("), Reason.CONDITION_INVALID),
        (lambda id: stores.OpenChannel(id, 1, start="middle"), Reason.BODY_MALFORMED),
        (lambda id: stores.AckPositions(id, "mine", 11), Reason.POSITION_UNKNOWN),
        (lambda id: stores.AckPositions(id, "theirs", 1), Reason.NAME_UNKNOWN),
        (lambda id: stores.DropName(id, "theirs"), Reason.NAME_UNKNOWN),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_reason(request_: Any, reason: Reason) -> None:
    ledge = filled()
    opened(ledge, name="mine")
    ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 7, "theirs"), entity="bob", inbox=OTHER)
    ledge.settle()
    granted, said = ledge.answer(ledge.ask(request_(f"{ledge.id:016x}")))
    assert (granted, said["code"]) == (False, reason)


@pytest.mark.req("O6")
def test_names_and_readings_are_bounded() -> None:
    ledge = filled(1, names_max=3, names_per_entity_max=2, channels_max=3)
    id = f"{ledge.id:016x}"
    said = []
    for number, (entity, name) in enumerate([("a", "1"), ("a", "2"), ("a", "3"), ("b", "1"), ("c", "1"), ("d", "")]):
        asked = ledge.ask(stores.OpenChannel(id, number, name), entity=entity)
        ledge.settle()
        said.append(ledge.answer(asked)[1].get("code", 0))
    limit = Reason.NAMES_OVER_LIMIT
    assert said == [0, 0, limit, 0, limit, Reason.CHANNELS_OVER_LIMIT]


@pytest.mark.req("O6")
def test_one_session_cannot_take_all_readings() -> None:
    ledge = filled(1, channels_max=200)
    said = []
    for inbox, count in ((INBOX, 65), (OTHER, 1)):
        for number in range(count):
            asked = ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", number), inbox=inbox)
            ledge.settle()
            said.append(ledge.answer(asked)[1].get("code", 0))
    assert said == [0] * 64 + [Reason.CHANNELS_OVER_LIMIT, 0]


@pytest.mark.req("O6")
@pytest.mark.parametrize("others", [("anonymous", "192.0.2.9"), ("bob", "192.0.2.1")])
def test_many_sessions_of_one_client_cannot_take_all_readings(others: tuple[str, str]) -> None:
    ledge = filled(1, channels_max=400)

    def opens(session: int, entity: str, source: str) -> int:
        said = []
        inbox = f"Inbox/00000000000000aa/{session:016x}"
        for number in range(70):
            request = stores.OpenChannel(f"{ledge.id:016x}", number)
            said.append(ledge.ask(request, entity, inbox, source=source))
            ledge.settle()
        return sum(ledge.answer(number)[0] for number in said)

    assert sum(opens(session, "anonymous", "192.0.2.1") for session in range(1, 9)) == 200
    assert opens(9, *others) == 70


@pytest.mark.req("O6")
@given(st.binary(max_size=300))
@settings(max_examples=100, deadline=None)
def test_no_request_breaks_a_store(payload: bytes) -> None:
    ledge = filled(1)
    ledge.store._serving.receive(payload, ledge.now)
    ledge.store._serving.receive(b'{"number":1,"to":"","entity":"e","roles":[],"inbox":"","body":{}}', ledge.now)
    ledge.settle()
    assert opened(ledge)[0]


def test_a_reader_whose_channel_is_not_open_is_told() -> None:
    """A store that was started anew knows no channels; a reader at a broker that stayed would wait for ever."""
    ledge = filled()
    credit(ledge, 3, again=True)
    assert [(each["channel"], each["code"]) for each in notices(ledge)] == [(1, Reason.CHANNEL_UNKNOWN)]


def test_the_simulated_reader_takes_each_position_once() -> None:
    ledge, notebook = filled(), Notebook()
    opened(ledge, window=4)
    reader = DurableReader("r", [("b", 1)], 1, notebook, pattern="#")
    assert reader.origin == origin_of(reader.secret)
    reader._found({"stores": [{"store": f"{ledge.id:016x}"}]}, 0)
    [place] = reader._places.values()
    place.open(0)
    for frame in [frame for frame in ledge.frames if not frame.flags]:
        reader.heard(Frame(frame.raw), 0)
        reader.heard(Frame(frame.raw), 0)
    credit(ledge, 2, window=4, again=True)
    for frame in [frame for frame in ledge.frames if not frame.flags]:
        reader.heard(Frame(frame.raw), 0)
    assert [record[1] for record in notebook.read["r"]] == list(range(6))


def examined(ledge: Ledge) -> list[int]:
    return [row["cursor"] for row in ledge.store.report("channels")]


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    ("asked", "most"),
    [
        ({"language": "predicates", "where": "n = -1"}, WORK_MAX // CONDITION_WORK),
        ({"filter": "nothing/+"}, WORK_MAX // TOPIC_WORK),
    ],
)
def test_all_readings_together_examine_little_in_one_input_and_each_gets_its_turn(
    asked: dict[str, Any], most: int
) -> None:
    ledge = Ledge()
    count = 5_000
    for start in range(0, count, 1_000):
        some = range(start, start + 1_000)
        ledge.deliver(*(event(b"t/%d" % number, b"", ORIGIN, number + 1, b'{"n":%d}' % number) for number in some))
        ledge.settle()
    ledge.frames.clear()
    ledge.store.press(1, True, ledge.now)
    for number in range(8):
        ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", number, end=count, window=100_000, **asked))
    ledge.store.press(1, False, ledge.now)
    inputs, before = 0, 0
    while examined(ledge) and min(examined(ledge)) < count:
        wake_at = ledge.take_once()
        assert sum(examined(ledge)) - before <= most, "in one input"
        before = sum(examined(ledge))
        assert max(examined(ledge)) - min(examined(ledge)) <= most, "in turn"
        if before < 8 * count:
            assert wake_at == ledge.now, "the rest is done at once"
        ledge.store.wake(ledge.now)
        inputs += 1
    assert inputs > 8
    assert sorted(each["channel"] for each in notices(ledge)) == [*range(8)], "all have reached their ends"


@pytest.mark.req("O6")
def test_inputs_that_come_before_the_next_wake_do_not_add_to_the_work_of_readings() -> None:
    ledge = Ledge()
    ledge.deliver(*(event(b"t", b"", ORIGIN, number, b'{"n":1}') for number in range(1, 1_001)))
    ledge.settle()
    ledge.store.press(1, True, ledge.now)
    ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 1, language="predicates", where="n = 2"))
    ledge.store.press(1, False, ledge.now)
    ledge.take_once()
    [before] = examined(ledge)
    for _ in range(5):
        ledge.store.press(1, False, ledge.now)
        ledge.take_once()
    assert examined(ledge) == [before]
    ledge.store.wake(ledge.now)
    ledge.take_once()
    assert examined(ledge) > [before]


def a_long_log() -> Ledge:
    """Three megabytes."""
    ledge = Ledge()
    for number in range(1, 31):
        ledge.deliver(event(b"t", bytes(100_000), ORIGIN, number))
    ledge.settle()
    return ledge


def sent(ledge: Ledge) -> int:
    """The bytes that readers got since the last call."""
    size = sum(len(frame.raw) for frame in ledge.frames)
    ledge.frames.clear()
    return size


def asks_again(ledge: Ledge, channels: int, rounds: int, *, opens: bool = False, sources: int = 1) -> int:
    """So many readings that take nothing ask again ten times a second. Returns how many bytes they got."""
    total = 0
    for turn in range(rounds):
        for channel in range(channels):
            source = f"192.0.2.{channel % sources}"
            if opens or not turn:
                request: Any = stores.OpenChannel(f"{ledge.id:016x}", channel, filter="t")
            else:
                request = stores.GiveCredit(f"{ledge.id:016x}", channel, 0, again=True)
            ledge.ask(request, "anonymous", source=source)
        ledge.settle()
        total += sent(ledge)
        ledge.wait(100)
        ledge.settle()
        total += sent(ledge)
    return total


def test_a_reading_that_asks_again_and_again_gets_so_much_per_second() -> None:
    ledge = a_long_log()
    got = asks_again(ledge, 1, 30)
    assert got <= READING_FREE + 3 * READING_PER_S + (4 << 20)
    assert got > READING_FREE, "a reader that lost something gets it again at once"
    assert ledge.store.report("overview")["thrown_away"] > 0


@pytest.mark.parametrize("opens", [False, True])
def test_all_readings_of_one_reader_get_so_much_per_second_that_they_throw_away(opens: bool) -> None:
    ledge = a_long_log()
    got = asks_again(ledge, 40, 10, opens=opens)
    assert got <= HOLDER_FREE + HOLDER_PER_S + 40 * (3 << 20)


def test_a_reading_that_asks_again_for_what_has_nothing_for_it_is_looked_at_only_so_often() -> None:
    ledge = Ledge()
    for number in range(8):
        ledge.deliver(*(event(b"t/%d" % n, b"", ORIGIN, n) for n in range(5_000 * number + 1, 5_000 * number + 5_001)))
    ledge.settle()
    ledge.ask(stores.OpenChannel(f"{ledge.id:016x}", 1, filter="+/x"))
    ledge.settle()
    channel = next(iter(ledge.store._channels._channels.values()))
    once = channel.worked
    for _ in range(50):
        ledge.ask(stores.GiveCredit(f"{ledge.id:016x}", 1, 0, again=True))
        ledge.settle()
    assert channel.worked <= 10 * max(once, 1)


def test_a_reading_that_had_to_wait_goes_on_and_gets_everything() -> None:
    ledge = a_long_log()
    asks_again(ledge, 1, 30)
    at, got = 0, list[int]()
    for _ in range(40):
        ledge.ask(stores.GiveCredit(f"{ledge.id:016x}", 0, at, again=at == 0), "anonymous", source="192.0.2.0")
        ledge.settle()
        ledge.wait(1_000)
        ledge.settle()
        for before, after, some in spans(ledge):
            if before <= at:
                got += [position for position in some if position >= at]
                at = max(at, after)
        ledge.frames.clear()
    assert got == list(range(30))
