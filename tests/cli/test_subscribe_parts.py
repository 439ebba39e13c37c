"""What `heliograph subscribe` and `heliograph replay` do by themselves: merging filters, reading times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from heliograph.cli.replay import _moment, _position
from heliograph.cli.subscribe import _merged
from heliograph.errors import UsageError
from heliograph.model.publication import Publication

pytestmark = pytest.mark.req("O2")


class Arriving:
    """A subscription to which these batches come."""

    def __init__(self, *batches: list[Publication]) -> None:
        self._batches = batches

    async def batches(self) -> AsyncIterator[list[Publication]]:
        """Each in a turn of its own."""
        for batch in self._batches:
            yield batch
            await asyncio.sleep(0)


def publication(origin: int, sequence: int) -> Publication:
    return Publication("t", b"", origin, sequence, b"")


def merged(*subscriptions: Arriving) -> list[tuple[int, int]]:
    async def read() -> list[tuple[int, int]]:
        return [one.id async for one in _merged(list(subscriptions))]  # type: ignore[arg-type]

    return asyncio.run(read())


def test_a_publication_that_two_filters_match_is_printed_once_and_in_its_publishers_order() -> None:
    first = Arriving([publication(7, 1), publication(7, 3)], [publication(7, 4)])
    second = Arriving([publication(7, 1), publication(7, 2), publication(7, 3)], [publication(7, 4)])
    assert merged(first, second) == [(7, 1), (7, 2), (7, 3), (7, 4)]


def test_one_filter_is_printed_as_it_comes() -> None:
    assert merged(Arriving([publication(9, 1), publication(7, 1)], [publication(9, 2)])) == [(9, 1), (7, 1), (9, 2)]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-03-01T08:00:00+01:00", 1_772_348_400.0),
        ("2026-03-01T08:00:00Z", 1_772_352_000.0),
        ("2026-03-01T08:00:00", 1_772_352_000.0 - 3 * 3_600),  # in the zone of this machine
        ("1772348400.5", 1_772_348_400.5),
    ],
)
def test_a_time_is_in_its_own_zone_or_in_that_of_this_machine(
    text: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "XXX-3")
    time.tzset()
    try:
        assert _moment("--since", text) == seconds
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_is_no_time_or_position_is_told_with_an_example() -> None:
    with pytest.raises(UsageError, match="--since 'noon': write 2026"):
        _moment("--since", "noon")
    for text in ("orders", "=5", "orders=", "orders=-1"):
        with pytest.raises(UsageError, match="STORE=N"):
            _position(text)
    assert _position("a=b=5") == ("a=b", 5)
