"""Places for requests: one client, or one broker, that takes them all gives way to others."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.discovery.resources.forwarding import COVERERS_MAX
from heliograph.discovery.resources.gathering import GatheredAnswer
from heliograph.discovery.resources.messages import AdvertisedResource, AdvertisementsTold, ResourceRequest
from tests.discovery.resources.net import Net
from tests.discovery.resources.pipe import OnPipe, RefusedByServiceError

PLACES = 20
DEADLINE_MS = 600_000


def discover(number: int, **fields: Any) -> dict[str, Any]:
    return {"do": "discover", "where": f"x > {number}", "deadline_ms": DEADLINE_MS, **fields}


@pytest.mark.req("O6")
@pytest.mark.parametrize("deliver", ["similarity", "normal"])
def test_a_client_that_fills_the_places_for_requests_keeps_no_other_out_at_any_broker(deliver: str) -> None:
    net = Net(["a", "b", "c"], [("a", "b"), ("b", "c")], config=ResourcesConfig(requests_max=PLACES))
    net.register("b", 1, "x <= 64")
    net.update("b", 1, 1, x=50)
    net.run(1)
    flood: list[GatheredAnswer] = []
    for number in range(3 * PLACES):
        net.ask(
            "a", f"x > {3 * PLACES - number}", flood, holder="flood", deliver=deliver, deadline_ns=DEADLINE_MS * 10**6
        )
        net.run(0.01)
    assert len(flood) == 3 * PLACES
    assert all(each.is_complete for each in flood)
    assert all(len(node.core.forwarding.known) <= PLACES for node in net.nodes.values())
    for at, holder in (("a", "other"), ("b", "other"), ("c", "flood")):
        answers = net.ask(at, "x > 4", holder=holder, deliver=deliver)
        net.run(0.1)
        assert [(each.is_complete, each.attempts, len(each.found)) for each in answers] == [(True, 1, 1)]


def test_an_answered_request_is_forgotten_soon_whatever_its_deadline_was() -> None:
    net = Net(["a", "b"], [("a", "b")], config=ResourcesConfig(cache_s=20))
    net.register("b", 1, "x <= 64")
    net.run(1)
    for number in range(PLACES):
        net.ask("a", f"x > {number}", deliver="normal", deadline_ns=DEADLINE_MS * 10**6)
    net.ask("a", "x > 7", deadline_ns=DEADLINE_MS * 10**6)
    net.run(1)
    assert [len(node.core.forwarding.known) for node in net.nodes.values()] == [PLACES + 1] * 2
    net.run(6)
    assert [len(node.core.forwarding.known) for node in net.nodes.values()] == [1, 1], "it may be shared for 20 s"
    net.run(15)
    assert [len(node.core.forwarding.known) for node in net.nodes.values()] == [0, 0]


def test_the_oldest_request_of_the_client_that_has_most_ends_with_what_it_has_found() -> None:
    pipe = OnPipe(requests_max=PLACES)
    pipe.tell(AdvertisementsTold(2, "b", "main", 2, 1, 1, True, add=[AdvertisedResource(7, False, "x <= 64", 1)]))
    for number in range(PLACES + 5):
        pipe.receive(pipe.request(discover(number, deliver="normal"), entity="anonymous", source="10.0.0.9"))
    assert pipe.counted == {"resource_requests_over_limit": 5}
    pipe.answers.clear()
    pipe.receive(pipe.request(discover(30, deliver="normal"), entity="anonymous", source="10.0.0.3"))
    (answer,) = pipe.answers.values()
    assert (answer["complete"], answer["missing"]) == (False, ["b"])
    asked = [each for each in pipe.sent if isinstance(each, ResourceRequest)]
    assert asked[-1].where == "x > 30"
    assert len(asked) == PLACES + 1


def test_one_broker_that_asks_without_end_gives_way_to_our_own_clients() -> None:
    pipe = OnPipe(requests_max=PLACES)
    pipe.ask(pipe.register(1, where="x <= 64", values={"x": 50}))
    until = pipe.service._time.time_ns(pipe.now) + 10**12
    for number in range(3 * PLACES):
        pipe.tell(ResourceRequest((2, 1, number), 0, f"x > {number}", 0, until))
    assert pipe.ask(discover(4))["complete"]
    known = pipe.service._core.forwarding.known
    assert len(known) == PLACES
    assert len([key for key in known if key[0][0] == 1]) == 1


def test_long_requests_that_are_not_answered_are_refused_to_who_has_most() -> None:
    pipe = OnPipe(requests_max=PLACES)
    pipe.tell(AdvertisementsTold(2, "b", "main", 2, 1, 1, True, add=[AdvertisedResource(7, False, "x <= 64", 1)]))
    for number in range(PLACES):
        assert pipe.ask(discover(number)) is None
    with pytest.raises(RefusedByServiceError, match="resource_requests_over_limit"):
        pipe.ask(discover(50))
    assert pipe.ask(discover(51), entity="other") is None


def test_thousands_of_similar_requests_do_not_make_another_one_slower() -> None:
    pipe = OnPipe()
    pipe.ask(pipe.register(1, where="x <= 64", values={"x": 50}))
    until = pipe.service._time.time_ns(pipe.now) + 10**12
    for number in range(500):
        pipe.tell(ResourceRequest((2, 1, number), 0, f"x > {-number}", number, until, "similarity"))
    forwarding = pipe.service._core.forwarding
    looked_at = forwarding.looked_at
    assert pipe.ask(discover(4))["complete"]
    assert forwarding.looked_at - looked_at == COVERERS_MAX
