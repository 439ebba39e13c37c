"""Options of a client that looks for a broker, and to whom it then shows itself."""

from __future__ import annotations

import pytest

from heliograph.client.discover import LOCAL_TIMEOUT_MS, TIMEOUT_MS, Discover, Trust, targets_of
from heliograph.discovery.brokers.result import Finding, SearchResult
from heliograph.errors import Reason, UsageError

NEAR = "127.0.0.1:4717"


def a_finding(name: str, *urls: str, answered_from: str = "192.0.2.9:4717", trip: float | None = 1.0) -> Finding:
    return Finding(name, urls, answered_from, False, 0.5, 0.1, True, trip, {}, 1.0, 1.0, "")


def found(*findings: Finding) -> SearchResult:
    return SearchResult(broker=findings[0].broker, urls=findings[0].urls, proven=True, findings=findings)


def written(result: SearchResult, brokers: tuple[str, ...] = (), **trust: object) -> list[str]:
    return [str(target) for target in targets_of(result, Trust(**trust), brokers)]  # type: ignore[arg-type]


BOTH = a_finding("b", "heliographs://192.0.2.9:4718", "heliograph://192.0.2.9:4717")


def test_all_problems_are_told_by_the_names_that_the_user_typed() -> None:
    options = Discover(
        bdns=("a:b:c", "exa mple"), brokers=("x",), multicast_group="10.0.0.1", timeout_ms=0, look_s=0, weights=("cpu",)
    )
    with pytest.raises(UsageError) as error:
        options.check()
    for word in ("search.bdns has 'a:b:c'", "'exa mple'", "search.brokers", "search.multicast_group", "look_s"):
        assert word in str(error.value)
    assert "timeout_ms" in str(error.value)
    assert "search.weights has 'cpu'" in str(error.value)


def test_a_single_text_is_not_taken_for_a_list_of_letters() -> None:
    with pytest.raises(UsageError, match=r"give several, such as \['a:1'\]"):
        Discover(bdns="a:1")  # type: ignore[arg-type]


def test_weights_are_over_the_usual_ones() -> None:
    weights = Discover(weights=("cpu=7",)).config((), (), ()).weights
    assert (weights.cpu, weights.delay) == (7.0, 4.0)


def test_who_asks_only_this_computer_does_not_wait_long() -> None:
    assert Discover().usual_timeout_ms == LOCAL_TIMEOUT_MS
    assert Discover(bdns=(NEAR,)).usual_timeout_ms == LOCAL_TIMEOUT_MS
    for wider in (Discover(bdns=("192.0.2.1:4719",)), Discover(bdns=("example.org",))):
        assert wider.usual_timeout_ms == TIMEOUT_MS
    assert Discover(multicast_interface="0.0.0.0").usual_timeout_ms == TIMEOUT_MS


def test_targets_come_in_the_order_of_the_search() -> None:
    second = a_finding("c", "heliograph://192.0.2.8:4717")
    assert written(found(BOTH, second)) == ["heliograph://192.0.2.9:4717", "heliograph://192.0.2.8:4717"]


@pytest.mark.req("B20")
def test_a_token_goes_to_nobody_who_merely_answered() -> None:
    here = a_finding("rogue", "heliograph://127.0.0.1:6666", answered_from="127.0.0.1:6667")
    assert written(found(here, BOTH), has_token=True) == []
    # A certificate of anybody's says nothing about whose broker this is.
    assert written(found(a_finding("rogue", "heliographs://rogue.example:443")), has_token=True) == []


@pytest.mark.req("B20")
def test_a_token_goes_to_a_broker_that_an_authority_vouches_for_and_to_one_that_the_program_named() -> None:
    assert written(found(BOTH), has_token=True, vouched=True) == ["heliographs://192.0.2.9:4718"]
    here = a_finding("own", f"heliograph://{NEAR}", answered_from=NEAR)
    assert written(found(here), (NEAR,), has_token=True) == [f"heliograph://{NEAR}"]
    named = ("192.0.2.9:4717",)
    assert written(found(BOTH), named, has_token=True) == []  # named, but the token would cross the network


@pytest.mark.req("B20")
def test_who_has_an_authority_is_not_talked_out_of_tls() -> None:
    assert written(found(a_finding("rogue", "heliograph://192.0.2.66:4717"), BOTH), vouched=True) == [
        "heliographs://192.0.2.9:4718"
    ]


@pytest.mark.req("B20")
def test_a_broker_elsewhere_cannot_send_us_to_our_own_machine() -> None:
    assert written(found(a_finding("rogue", "heliograph://127.0.0.1:22", "heliograph://localhost:25"))) == []


def test_names_that_are_none_are_passed_over() -> None:
    assert written(found(a_finding("odd", "heliograph://a b:1", "ftp://x", "heliograph://192.0.2.9:4717"))) == [
        "heliograph://192.0.2.9:4717"
    ]


def test_the_static_list_is_used_as_the_program_wrote_it() -> None:
    unproven = SearchResult(urls=("heliograph://192.0.2.1:4717",))
    assert written(unproven, ("broker.example.org:4717",)) == ["heliograph://broker.example.org:4717"]
    assert written(unproven, ("broker.example.org:4717",), vouched=True) == ["heliographs://broker.example.org:4717"]


def test_the_static_list_is_dialled_also_if_nobody_was_found_as_one_of_it_may_start_only_now() -> None:
    nobody = SearchResult(reason=Reason.BROKER_NOT_FOUND)
    assert written(nobody, ("broker.example.org:4717",)) == ["heliograph://broker.example.org:4717"]
    assert written(nobody) == []
