"""Bodies between brokers in which something is wrong: they are refused, or can be used and passed on.

In:    good bodies (test_golden_broker_bodies.py), with fields replaced by what hypothesis draws.
Out:   claims about the decoders of wire/broker_bodies.py.
State: none.
Not here: what brokers do about a refused body (tests/broker/routing/test_hostile.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ProtocolError, Reason
from heliograph.wire import broker_bodies as network
from heliograph.wire.limits import AGE_MAX, COST_MAX
from tests.wire.test_golden_broker_bodies import GOLDEN

pytestmark = pytest.mark.req("N18")

integers = st.integers() | st.sampled_from([-1, 0, AGE_MAX, AGE_MAX + 1, COST_MAX + 1, (1 << 64) - 1, 1 << 64, 10**400])
values = st.recursive(
    st.none() | st.booleans() | integers | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(integers.map(str) | st.text(max_size=4), inner),
    max_leaves=8,
)
ALL = sorted(GOLDEN)


@given(st.sampled_from(ALL), st.data())
def test_a_body_with_a_number_that_makes_no_sense_is_refused_or_can_be_packed_and_told_on(
    name: str, data: st.DataObject
) -> None:
    _, text, _, decode = GOLDEN[name]
    place = data.draw(st.sampled_from(list(re.finditer(r"\d+", text)) or [re.match("", text)]))
    assert place is not None
    decoded = read(decode, f"{text[: place.start()]}{data.draw(integers)}{text[place.end() :]}".encode())
    if decoded is not None:
        for number in numbers_in(json.loads(network.encode(decoded))):
            assert 0 <= number < 1 << 64


@given(st.sampled_from(ALL), st.data())
def test_a_body_with_a_field_that_makes_no_sense_is_refused_or_can_be_told_on(name: str, data: st.DataObject) -> None:
    _, text, _, decode = GOLDEN[name]
    body: dict[str, Any] = json.loads(text)
    body[data.draw(st.sampled_from(sorted(body)))] = data.draw(values)
    decoded = read(decode, json.dumps(body).encode())
    told_on = None if decoded is None else decode(network.encode(decoded))
    assert told_on == decoded


@given(st.sampled_from(ALL), st.binary(max_size=60))
def test_any_bytes_are_a_body_or_the_peers_fault(name: str, data: bytes) -> None:
    read(GOLDEN[name][3], data)


def read(decode: Callable[[bytes], Any], data: bytes) -> Any:
    """The body, or None if it is refused, for the right reason."""
    try:
        return decode(data)
    except ProtocolError as error:
        if error.reason is not Reason.BODY_MALFORMED:
            raise
        return None


def numbers_in(value: Any) -> list[int]:
    """Every number of a body, also those that are keys."""
    if isinstance(value, dict):
        used = [part for key, part in value.items() if key != "versions"]  # those are only compared
        return [int(key) for key in value if key.lstrip("-").isdigit()] + numbers_in(used)
    if isinstance(value, list):
        return [number for one in value for number in numbers_in(one)]
    return [value] if isinstance(value, int) else []
