"""Verdicts: what a search says of its choice is true, and does not contradict itself."""

from __future__ import annotations

import pytest

from heliograph.discovery.brokers import selection, verdicts
from heliograph.discovery.brokers.candidate import Candidate
from heliograph.discovery.brokers.messages import Usage
from tests.discovery.brokers.test_search import Talk
from tests.discovery.brokers.test_selection import BUSY, CONFIG, answer, pinged

HOT, HOTTER = Usage(cpu_permille=950), Usage(cpu_permille=1_000)


def told(*everybody: Candidate) -> dict[str, str]:
    """The verdict of each."""
    selection.judge(everybody, CONFIG)
    verdicts.explain(everybody, selection.rank(everybody, CONFIG), CONFIG)
    return {candidate.name: candidate.verdict for candidate in everybody}


@pytest.mark.req("B12")
def test_every_candidate_is_told_why() -> None:
    best, tie = pinged(answer("best", 5), 10), pinged(answer("tie", 5, usage=BUSY), 10.1)
    far, dead = pinged(answer("far", 50), 100), pinged(answer("dead", 9))
    dead.pings = 7
    hot, rest, nowhere = pinged(answer("hot", 5, usage=HOT), 30), answer("rest", 90), answer("nowhere", 9)
    nowhere.relayed, nowhere.source = True, ("", 0)
    hot_rest = answer("hot rest", 90, usage=HOT)
    words = told(best, tie, far, dead, hot, rest, nowhere, hot_rest)
    assert words["best"] == "chosen: 10.00 ms, as near as 1 other and the least busy"
    assert words["tie"].startswith("as near as best, but busier (idle 0.")
    assert words["far"] == "farther: 100.00 ms against 10.00 ms"
    assert words["dead"] == "pinged 7 times without an answer"
    assert words["hot"] == "over the load limit: CPU at 95 %"
    assert words["rest"].startswith("not pinged: its score of 0.")
    assert words["nowhere"] == "not pinged: its address for pings is unknown"
    assert words["hot rest"] == "not pinged: over the load limit, CPU at 95 %"


def test_who_was_not_waited_for_may_be_farther_and_is_not_called_dead() -> None:
    best, slow = pinged(answer("best", 5), 10), pinged(answer("slow", 9))
    slow.pings = 1
    words = told(best, slow)
    assert words["best"] == "chosen: 10.00 ms, the only one that answered pings"
    assert words["slow"] == "pinged once without an answer while best was measured: farther, or gone"


def test_who_is_alone_is_the_only_one_that_answered() -> None:
    alone = "chosen: 10.00 ms, the only one that answered"
    assert told(pinged(answer("b", 5), 10)) == {"b": alone}
    assert told(pinged(answer("b", 5, usage=HOT), 10)) == {"b": f"{alone}, though over the load limit: CPU at 95 %"}


def test_where_all_are_over_the_load_limit_that_is_said_and_is_no_reason_against_the_others() -> None:
    near, same = pinged(answer("near", 5, usage=HOT), 10), pinged(answer("same", 5, usage=HOT), 10.1)
    busier, far = pinged(answer("busier", 5, usage=HOTTER), 10), pinged(answer("far", 5, usage=HOT), 20)
    words = told(near, same, busier, far, answer("rest", 90, usage=HOT))
    assert words["near"] == (
        "chosen: 10.00 ms, as near as 2 others and no busier; "
        "all that answered pings are over the load limit, this one with CPU at 95 %"
    )
    assert words["same"] == "as near and as busy as near; over the load limit too"
    assert words["busier"].startswith("as near as near, but busier (idle 0.")
    assert words["far"] == "farther: 20.00 ms against 10.00 ms; over the load limit too"
    assert words["rest"] == "not pinged: over the load limit as near is, and farther by its estimate"


def test_the_lowest_delay_is_not_claimed_where_a_hot_broker_is_nearer() -> None:
    words = told(pinged(answer("hot", 1, usage=HOT), 3), pinged(answer("cool", 5), 10), pinged(answer("far", 5), 20))
    assert words["cool"] == "chosen: 10.00 ms, the lowest delay of those under the load limit"
    assert words["hot"] == "over the load limit: CPU at 95 %"


def test_who_is_farther_than_the_nearest_allows_is_not_called_as_near_as_a_choice_that_is_farther_too() -> None:
    nearest, best = pinged(answer("nearest", 5, usage=BUSY), 10), pinged(answer("best", 5), 10.7)
    words = told(nearest, best, pinged(answer("third", 5), 11))
    assert words["best"] == "chosen: 10.70 ms, as near as 1 other and the least busy"
    assert words["third"] == "farther: 11.00 ms against 10.70 ms"


def test_where_landmarks_tell_who_is_near_a_score_is_no_reason() -> None:
    near, other, silent = pinged(answer("near", 5), 10), answer("other", 5), answer("silent", 5)
    near.apart_ns, other.apart_ns = 1, 9
    words = told(near, other, silent)
    assert words["other"] == "not pinged: others see the landmarks more as we do, so they are nearer"
    assert words["silent"] == "not pinged: it does not say how far it is from the landmarks"


def test_a_choice_without_pings_is_one_by_score() -> None:
    taken, less, hot, dead = (
        answer("taken", 5),
        answer("less", 50, usage=BUSY),
        answer("hot", 5, usage=HOT),
        answer("dead", 5),
    )
    dead.pings = 7
    selection.judge([taken, less, hot, dead], CONFIG)
    verdicts.explain_estimate([taken, less, dead, hot])
    assert taken.verdict == f"chosen by its score of {taken.score:.2f}: pings reached no broker"
    assert less.verdict == f"its score of {less.score:.2f} is not above {taken.score:.2f}"
    assert dead.verdict == "pinged 7 times without an answer"
    assert hot.verdict == "over the load limit: CPU at 95 %"
    verdicts.explain_estimate([hot])
    assert hot.verdict.endswith(", though over the load limit: CPU at 95 %")


def test_a_directory_says_how_many_brokers_it_knows() -> None:
    for brokers, words in ((0, "no broker"), (1, "1 broker"), (3, "3 brokers")):
        talk = Talk()
        talk.wait(2)
        talk.acknowledge(brokers=brokers)
        assert talk.search.report("overview")["asked"] == [
            f"directory 192.0.2.100:4719: acknowledged after 2.0 ms, knows {words}"
        ]
