"""Mistakes that people make in programs: each is told in a sentence that says what to write instead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import heliograph
from heliograph.errors import UsageError
from heliograph.live.resources import ResourceCalls
from heliograph.live.stored import StoreFace, _pieces
from heliograph.live.subscription import OpenSubscriptions, Subscribing

pytestmark = pytest.mark.req("O2")


async def _never() -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    ("unawaited", "told"),
    [
        (heliograph.connect("heliograph://127.0.0.1:1"), "`client = await heliograph.connect"),
        (Subscribing(_never), "`subscription = await client.subscribe"),
    ],
)
def test_what_was_not_awaited_says_so(unawaited: Any, told: str) -> None:
    with pytest.raises(AttributeError, match="has no 'publish'") as caught:
        unawaited.publish("a", b"")
    assert told in str(caught.value)
    assert not hasattr(unawaited, "__deepcopy__")


@pytest.mark.parametrize("publications", [["ab"], ["3 lamps"], [("a",)], [("a", b"", {}, 4)]])
def test_what_is_no_publication_of_a_batch_is_told_with_its_place(publications: Any) -> None:
    with pytest.raises(UsageError, match=r"publication 1 of the part is .*: give \(topic, payload\)"):
        list(_pieces([("t", b"good"), *publications]))


@pytest.mark.parametrize("number", ["20260301", 1.0, True])
def test_a_batch_has_a_whole_number(number: Any) -> None:
    with pytest.raises(UsageError, match="is no number of a batch"):
        StoreFace().batch("store", "job", number)


def test_attributes_in_place_of_a_condition_are_told() -> None:
    async def register() -> None:
        await ResourceCalls.register_resource(None, {"memory": 64})  # type: ignore[arg-type]

    with pytest.raises(UsageError, match=r"attributes=\{'memory': 64\}"):
        asyncio.run(register())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"address": ("127.0.0.1", 4717)}, "4717 is not an address: write heliograph://host:port"),
        ({"network": 5}, "network = 5: give its name"),
    ],
)
def test_what_connect_cannot_use_is_told(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        heliograph.connect(**given)


def test_a_callback_is_a_function() -> None:
    opened = OpenSubscriptions(None, None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="callback = 3: give a function"):
        asyncio.run(opened.subscribe(None, 3))  # type: ignore[arg-type]
