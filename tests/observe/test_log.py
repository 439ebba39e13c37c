"""Log lines and counters: readable, bounded, and nothing a peer says can forge one."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import Reason, UsageError
from heliograph.notes import LinkAttached, LinkDetached, Note, PeerRefused, ReloadFailed
from heliograph.observe.counters import Counters
from heliograph.observe.log import LINES_PER_SECOND, NodeLog

MORNING = 1_700_000_000_123_000_000

pytestmark = pytest.mark.req("O4")


def lines_of(*notes: Note, format: str = "text", level: str = "info") -> list[str]:
    stream = io.StringIO()
    log = NodeLog("b1", format=format, level=level, stream=stream, clock=lambda: MORNING)
    for note in notes:
        log.heard("broker", note)
    return stream.getvalue().splitlines()


def test_a_note_is_a_line_with_time_level_broker_machine_and_its_fields() -> None:
    assert lines_of(LinkDetached(4, "sensor-7", Reason.SILENT)) == [
        "2023-11-14T22:13:20.123Z info    b1 broker link_detached link=4 entity=sensor-7 reason=silent"
    ]


def test_a_note_is_a_json_object() -> None:
    (line,) = lines_of(PeerRefused(4, Reason.KIND_UNKNOWN, "kind 99"), format="json")
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "warning",
        "broker": "b1",
        "machine": "broker",
        "note": "peer_refused",
        "link": 4,
        "reason": "kind_unknown",
        "detail": "kind 99",
    }


def test_quiet_notes_are_left_out_unless_they_are_asked_for() -> None:
    attached = LinkAttached(1, "tcp", "127.0.0.1:1")
    assert lines_of(attached) == []
    assert len(lines_of(attached, level="debug")) == 1
    assert lines_of(LinkDetached(1, "a", Reason.CLOSED), level="warning") == []


@given(st.text(), st.sampled_from(["text", "json"]))
def test_whatever_a_peer_says_stays_within_one_line_and_is_told_in_full(said: str, format: str) -> None:
    (line,) = lines_of(PeerRefused(1, Reason.BODY_MALFORMED, said), format=format)
    assert line.isprintable()
    if format == "json":
        assert json.loads(line)["detail"] == said
    else:
        shown = line.partition(" detail=")[2]
        assert shown == said or json.loads(shown) == said


@pytest.mark.req("O6")
def test_a_flood_of_one_kind_is_cut_and_counted_and_others_are_still_heard() -> None:
    stream = io.StringIO()
    now = MORNING
    log = NodeLog("b1", stream=stream, clock=lambda: now)
    for _ in range(LINES_PER_SECOND + 30):
        log.heard("broker", PeerRefused(0, Reason.TLS_FAILED, ""))
    log.heard("broker", ReloadFailed(["x"]))
    now += 1_000_000_000
    log.heard("broker", LinkDetached(1, "a", Reason.CLOSED))
    lines = stream.getvalue().splitlines()
    assert len(lines) == LINES_PER_SECOND + 3
    assert lines[-3].endswith('reload_failed problems=["x"]')
    assert lines[-2].endswith("log lines_suppressed kind=peer_refused lines=30")


@pytest.mark.req("O6")
def test_a_kind_that_flooded_one_second_is_logged_again_in_the_next() -> None:
    stream = io.StringIO()
    now = MORNING
    log = NodeLog("b1", stream=stream, clock=lambda: now)
    for second in range(3):
        for _ in range(LINES_PER_SECOND + 30 - 10 * second):
            log.heard("broker", PeerRefused(0, Reason.TLS_FAILED, ""))
        now += 1_000_000_000
    lines = stream.getvalue().splitlines()
    assert sum(" peer_refused " in line for line in lines) == 3 * LINES_PER_SECOND
    assert [line.rpartition(" ")[2] for line in lines if "lines_suppressed" in line] == ["lines=30", "lines=20"]


def test_a_line_of_the_node_itself_reads_as_it_was_said() -> None:
    stream = io.StringIO()
    log = NodeLog("b1", stream=stream, clock=lambda: MORNING)
    log.say("info", "open on 127.0.0.1:4717")
    log.say("debug", "not shown")
    assert stream.getvalue() == "2023-11-14T22:13:20.123Z info    b1 node open on 127.0.0.1:4717\n"


def test_a_stream_that_is_closed_does_not_end_the_broker() -> None:
    stream = io.StringIO()
    log = NodeLog("b1", stream=stream)
    stream.close()
    log.say("error", "nobody reads this")
    log.heard("broker", ReloadFailed(["x"]))


def test_an_unknown_level_or_format_is_refused() -> None:
    with pytest.raises(UsageError):
        NodeLog("b1", level="loud")
    with pytest.raises(UsageError):
        NodeLog("b1", format="xml")


def test_counters_count_by_machine_kind_and_reason() -> None:
    counters = Counters()
    for reason in (Reason.SILENT, Reason.CLOSED, Reason.SILENT):
        counters.heard("broker", LinkDetached(1, "a", reason))
    counters.heard("admin", ReloadFailed([]))
    assert counters.count("link_detached") == 3
    assert counters.count("link_detached", Reason.SILENT) == 2
    assert counters.count("peer_refused") == 0
    assert counters.report() == [
        {"machine": "admin", "note": "reload_failed", "reason": "", "count": 1},
        {"machine": "broker", "note": "link_detached", "reason": "closed", "count": 1},
        {"machine": "broker", "note": "link_detached", "reason": "silent", "count": 2},
    ]
