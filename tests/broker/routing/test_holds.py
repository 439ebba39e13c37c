"""Which parcels wait while the path to their destination changes."""

from __future__ import annotations

import pytest

from heliograph.broker.routing.holds import Hold, Holds
from heliograph.broker.routing.ports import Neighbour, Port
from heliograph.broker.routing.view import View
from heliograph.machine import Peer, Timers
from tests.broker.routing.test_map import a_member

pytestmark = pytest.mark.req("N5")

ME, OLD, NEW, FAR, OTHER = 1, 2, 3, 4, 5


def some_holds() -> Holds:
    """The path to FAR led over OLD; it is to lead over NEW."""
    view = View(a_member(ME, {}), Timers())
    for broker in (OLD, NEW, OTHER):
        link = Port(broker, Peer("tcp", ""), 0)
        view.neighbours[broker] = Neighbour(link, broker, f"b{broker}", "c", 1, False)
    holds = Holds(view, lambda *_: None, lambda *_: None)
    holds.changing[FAR] = Hold(number=1, old=OLD, step=NEW, since=0)
    return holds


@pytest.mark.parametrize("trace", [(), (OTHER,), (OLD, OTHER)], ids=["from here", "from elsewhere", "long ago by it"])
def test_what_could_overtake_waits(trace: tuple[int, ...]) -> None:
    holds = some_holds()
    assert holds.way_to(FAR, NEW, trace) is holds.detour


@pytest.mark.parametrize(
    "trace", [(OLD,), (OTHER, OLD), (ME, OTHER)], ids=["sent back", "over the old path", "was here"]
)
def test_what_comes_from_the_old_path_is_in_front_and_does_not_wait(trace: tuple[int, ...]) -> None:
    """It left before everything that waits; to hold it too would delay it for nothing, or make it turn for ever."""
    way = some_holds().way_to(FAR, NEW, trace)
    assert way is not None
    assert way.broker == NEW


def test_once_the_old_path_is_empty_nothing_waits() -> None:
    holds = some_holds()
    holds.changing[FAR].end()
    way = holds.way_to(FAR, OTHER, ())
    assert way is not None
    assert way.broker == NEW, "the step that was planned, also where another one is shorter by now"
