"""The reasons on the protocol page are those of errors.Reason, no more and no fewer.

In:    docs/reference/protocol.md and the enum.
Out:   claims that they agree, so that a client writer can trust the page.
State: none.
Not here: that the broker gives the right reason (tests/conformance).
"""

from __future__ import annotations

import re
from pathlib import Path

from heliograph.errors import Reason
from heliograph.wire import bodies, limits
from heliograph.wire.frames import Kind

PAGE = (Path(__file__).parents[2] / "docs/reference/protocol.md").read_text()
ROW = re.compile(r"^\| (\d{3}) \| `([a-z_]+)` \| (\S.*) \|$", re.MULTILINE)


def test_the_page_lists_every_reason_with_its_code_in_order() -> None:
    listed = [(int(code), word) for code, word, _ in ROW.findall(PAGE)]
    assert listed == [(reason.value, reason.word) for reason in Reason]


def test_every_reason_on_the_page_has_a_meaning_of_its_own() -> None:
    meanings = [meaning for _, _, meaning in ROW.findall(PAGE)]
    assert len(set(meanings)) == len(Reason)


def test_every_reason_named_in_the_text_exists() -> None:
    words = {reason.word for reason in Reason}
    said = set(re.findall(r'"reason": "([a-z_]+)"', PAGE))
    assert said
    assert said <= words


def test_the_page_lists_every_kind_that_a_client_meets_with_its_number() -> None:
    listed = {(int(number), name) for number, name in re.findall(r"^\| (\d+) \| ([A-Z]+) \|", PAGE, re.MULTILINE)}
    assert listed <= {(kind.value, kind.name) for kind in Kind}
    assert listed >= {(kind.value, kind.name) for kind in Kind if kind < 32}


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    for value in (limits.FRAME_BYTES_MAX, limits.HEADERS_BYTES_MAX, limits.DELIVERY_BYTES_MAX):
        assert f"{value:,} bytes" in PAGE


def test_a_code_that_nobody_knows_reads_as_goodbye() -> None:
    assert bodies.reason_of(999) is Reason.GOODBYE
    assert [bodies.reason_of(reason.value) for reason in Reason] == list(Reason)
