"""The real broker against the oracle, over random sessions of several clients.

In:    sessions drawn by hypothesis: any order of steps, any split of the streams, press and take at any moment.
Out:   claims: on every link both say the same, in the same order; links end for the same reasons; the same are held.
State: none beyond one example.
Not here: the steps and the pair of brokers (sessions.py), the oracle (oracle.py), time (test_bad_input.py).

A failure prints the shortest session that hypothesis found, one step per line, and what each broker said.
"""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heliograph.broker.config import LimitsConfig
from tests.conformance import sessions
from tests.conformance.oracle import Rule, Said, Settings
from tests.conformance.sessions import CLIENTS, Pair, Step

pytestmark = pytest.mark.req("N6", "N15", "O6", "O8")

LEVELS = st.sampled_from(["a", "b", "c", "ä"])
ROOTS = st.sampled_from(["a", "a", "b", "b", "System", "Entity"])
TAILS = st.lists(LEVELS, max_size=2)
topics = st.builds(lambda root, tail: "/".join([root, *tail]), ROOTS, TAILS)
bad_topics = st.sampled_from(["", "a//b", "/a", "a/", "a/+", "#", "a\x07", "/".join("a" * 33), "ä" * 513])
filters = st.builds(
    lambda root, tail, rest: "/".join([*root, *tail, *rest]) or "#",
    st.lists(st.one_of(ROOTS, st.just("+")), max_size=1),
    st.lists(st.one_of(LEVELS, st.just("+")), max_size=2),
    st.lists(st.just("#"), max_size=1),
)
bad_filters = st.sampled_from(["", "a//b", "a/#/b", "a+", "b#", "a\x07", "+a/b"])
clients = st.sampled_from(list(CLIENTS))
numbers = st.integers(1, 4)
policies = st.sampled_from(["drop_oldest", "drop_oldest", "disconnect", "hold"])

publish = st.builds(sessions.Publish, clients, topics, st.integers(0, 30), st.integers(1, 8))
expiring = st.builds(sessions.Publish, clients, topics, st.integers(0, 30), st.just(1), st.sampled_from([-60, 60]))
mistaken = st.builds(sessions.Publish, clients, bad_topics, st.integers(0, 30))
subscribe = st.builds(sessions.Subscribe, clients, numbers, filters, policies, st.booleans())
misunderstood = st.one_of(
    st.builds(sessions.Subscribe, clients, numbers, bad_filters),
    st.builds(sessions.Subscribe, clients, numbers, filters, language=st.just("sql")),
)
send = st.builds(sessions.Send, clients, st.integers(1, 400))
steps: st.SearchStrategy[Step] = st.one_of(
    publish,
    publish,
    publish,
    subscribe,
    subscribe,
    send,
    send,
    send,
    st.builds(sessions.Press, clients, st.booleans()),
    st.builds(sessions.Unsubscribe, clients, numbers),
    st.builds(sessions.Flush, clients, st.integers(0, 2**64 - 1)),
    st.just(sessions.Take()),
    st.builds(sessions.Dial, clients, st.booleans()),
    expiring,
    mistaken,
    misunderstood,
    st.builds(sessions.Ask, clients, st.sampled_from(["admin", "oracle"])),
    st.builds(sessions.Leave, clients, st.booleans()),
    st.builds(sessions.Break, clients, st.sampled_from(sorted(sessions.BREAKS))),
    st.builds(
        sessions.Dial,
        clients,
        body=st.sampled_from([(("versions", [2, 3]),), (("needs", ["time-travel"]),), (("versions", [9, 1]),)]),
    ),
)
rules = st.lists(
    st.builds(
        Rule,
        st.sampled_from(["allow", "deny"]),
        st.sampled_from([("publish",), ("subscribe",), ("publish", "subscribe"), ("ask",)]),
        st.lists(filters, min_size=1, max_size=2).map(tuple),
        st.sampled_from([("*",), ("ann",), ("sensor-*",), ("role:admin",), ("bob", "root")]),
    ),
    max_size=3,
).map(tuple)
access = st.builds(Settings, rules=rules, default=st.sampled_from(["allow", "allow", "deny"]))


def open_with(story: list[Step], holding: bool) -> list[Step]:
    """Everybody dials in first: a session in which nobody ever does is no test."""
    return [*(sessions.Dial(name, holding) for name in CLIENTS), *story]


def compare(pair: Pair, story: list[Step]) -> None:
    """Take both brokers through a session and claim that they agree."""
    for step in story:
        hypothesis.note(f"    {step}")
        pair.go(step)
    pair.finish()
    for link, model in pair.oracle.links.items():
        real = pair.real(link)
        hypothesis.note(f"link {link} ({model.entity}) should hear {model.said}\n                   and heard {real}")
        problem = difference(model.said, real, may_be_cut=link in pair.vanished)
        assert problem is None, f"link {link} of {model.entity}: {problem}"
        assert pair.hangups.get(link) == model.ended
    assert pair.holds == pair.oracle.holds


def difference(expected: list[Said], real: list[Said], may_be_cut: bool) -> str | None:
    """Where the two part; what may be left out need not be there, and a link that was cut may miss the end."""
    heard = iter(real)
    following = next(heard, None)
    for position, said in enumerate(expected):
        if said == following:
            following = next(heard, None)
        elif following is None and may_be_cut:
            return None
        elif said.must_be_said:
            return f"expected {said} as number {position}, heard {following}"
    return None if following is None else f"heard {following}, which nothing calls for"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=1, max_size=60), access)
def test_the_broker_does_what_the_oracle_does(story: list[Step], rules_in_force: Settings) -> None:
    compare(Pair(rules_in_force), open_with(story, holding=False))
