"""Topics under loss, delay, partitions and crashes: what checkers hold on to, and that each notices a planted fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heliograph.broker.rights import Rights
from heliograph.discovery.topics import topic_searches
from heliograph.discovery.topics.epochs import Handing, TopicEpochs
from heliograph.discovery.topics.handover import KeyOffer
from heliograph.discovery.topics.owners import OwnTopics
from heliograph.discovery.topics.revocations import KnownRevocations
from heliograph.errors import ConfigError
from heliograph.repository import KeepTopics, KeptTopics
from heliograph.sim.repositories import MemoryRepository
from heliograph.sim.run import RunResult, play
from heliograph.sim.scenario_files import load, parse, shipped
from heliograph.sim.topics.rights_user import RightsUser
from tests.sweep.seeds import seeds_of

NAMES = [name for name in shipped() if name.startswith("topics-")]
SEEDS = [
    pytest.param(name, seed, marks=[pytest.mark.slow] if number else [])  # `make quick` plays one of each
    for name in NAMES
    for number, seed in enumerate(seeds_of(name))
]


@pytest.mark.req("O7", "T7", "T8", "T10", "T11", "T12", "T13")
@pytest.mark.parametrize(("name", "seed"), SEEDS)
def test_a_scenario_with_topics_holds(name: str, seed: int) -> None:
    result = play(load(name), seed)
    assert result.ok, "\n".join(
        [result.crash, *map(str, result.violations), f"replay: heliograph simulate {name} --seed {seed}"]
    )
    assert all(result.faults.values())
    assert result.tally["complete"] > 10
    assert result.tally["created"] >= 2


@pytest.mark.req("T10")
def test_without_directories_owners_that_came_back_answered() -> None:
    result = play(load("topics-directories"), 1, keep_journal=True)
    assert result.tally["by_owners"] > 5
    crashed_at = {who: at for at, _, kind, who, _ in result.journal.entries if kind == "crashed"}
    owners = {
        owner
        for at, _, kind, _, details in result.journal.entries
        if kind == "found"
        for owner in details[3]
        if at > crashed_at[owner]
    }
    assert owners == {"alice", "carol"}


@pytest.mark.req("O7")
def test_a_run_with_topics_repeats_to_the_last_byte() -> None:
    one, other = (play(load("topics-calm"), 3) for _ in range(2))
    assert (one.digest, one.tally) == (other.digest, other.tally)


# -- planted faults -----------------------------------------------------------------------------------------------


def answers_lack_a_topic(patch: pytest.MonkeyPatch) -> None:
    """A directory leaves the last entry of a slice out."""
    real = topic_searches.UnderWay.keep
    patch.setattr(topic_searches.UnderWay, "keep", lambda self, entries, looked: real(self, entries[:-1], looked))


def searches_forget_who_asks(patch: pytest.MonkeyPatch) -> None:
    """A directory searches for everybody as if carol asked."""
    real: Callable[..., Any] = topic_searches.question_of
    patch.setattr(topic_searches, "question_of", lambda query, entity, *more: real(query, "carol", *more))
    patch.setattr("heliograph.discovery.topics.held_grants.HeldGrants.may_see", lambda *_: True)


def grants_are_checked_only_once(patch: pytest.MonkeyPatch) -> None:
    """What was revoked is forgotten at once: brokers and directories go on accepting it."""
    patch.setattr(KnownRevocations, "has", lambda self, what: False)


def brokers_do_not_end_rights(patch: pytest.MonkeyPatch) -> None:
    """A link that was allowed to use a topic may go on after the grant was revoked."""
    patch.setattr(Rights, "forbid", lambda self, grants: 0)


def keys_never_change(patch: pytest.MonkeyPatch) -> None:
    def revoke(self: TopicEpochs, topic: bytes, grant: bytes, wall_ms: int, expires_ms: int = 0) -> Handing | None:
        return None

    patch.setattr(TopicEpochs, "revoke", revoke)


def keys_are_handed_to_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyOffer, "_say", lambda self, now: None)


def events_are_sent_in_the_clear(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RightsUser, "sealed", lambda self, plan, topic, mark, now: mark.encode())


def directories_acknowledge_what_they_do_not_keep(patch: pytest.MonkeyPatch) -> None:
    real = MemoryRepository.keep

    def keep(self: MemoryRepository, job: KeepTopics) -> KeptTopics:
        if not job.entries:
            return real(self, job)
        return KeptTopics(len(self), tuple("appeared" for _ in job.entries), ())

    patch.setattr(MemoryRepository, "keep", keep)


def expired_topics_stay(patch: pytest.MonkeyPatch) -> None:
    real = MemoryRepository.keep
    patch.setattr(
        MemoryRepository,
        "keep",
        lambda self, job: real(self, KeepTopics(job.entries, job.forgotten, 0, job.topics_max, job.per_owner_max)),
    )


def withdrawals_are_confirmed_and_not_carried_out(patch: pytest.MonkeyPatch) -> None:
    real = MemoryRepository.keep

    def keep(self: MemoryRepository, job: KeepTopics) -> KeptTopics:
        kept = real(self, job)
        if job.forgotten:
            for entry in kept.forgotten:
                real(self, KeepTopics((entry,), topics_max=10, per_owner_max=10))
        return kept

    patch.setattr(MemoryRepository, "keep", keep)


def directories_answer_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(topic_searches.TopicSearches, "_tell", lambda *_, **__: None)


PLANTED = {
    "found": (answers_lack_a_topic, directories_answer_nobody, withdrawals_are_confirmed_and_not_carried_out),
    "hidden": (searches_forget_who_asks, grants_are_checked_only_once),
    "granted": (brokers_do_not_end_rights, grants_are_checked_only_once),
    "keys": (keys_never_change, keys_are_handed_to_nobody, events_are_sent_in_the_clear),
    "replicas": (
        directories_acknowledge_what_they_do_not_keep,
        withdrawals_are_confirmed_and_not_carried_out,
        expired_topics_stay,
    ),
}


@pytest.fixture(scope="module")
def with_fault() -> Callable[[Callable[[pytest.MonkeyPatch], None]], RunResult]:
    """The run with a planted fault; each is played once."""
    played: dict[str, RunResult] = {}

    def run(plant: Callable[[pytest.MonkeyPatch], None]) -> RunResult:
        if plant.__name__ not in played:
            with pytest.MonkeyPatch.context() as patch:
                plant(patch)
                played[plant.__name__] = play(load("topics-calm"), 1)
        return played[plant.__name__]

    return run


@pytest.mark.req("O7")
@pytest.mark.parametrize(
    ("checker", "plant"),
    [
        pytest.param(checker, plant, marks=[pytest.mark.sweep] if number else [])
        for checker, plants in PLANTED.items()
        for number, plant in enumerate(plants)
    ],
)
def test_a_planted_fault_is_noticed(
    checker: str,
    plant: Callable[[pytest.MonkeyPatch], None],
    with_fault: Callable[[Callable[[pytest.MonkeyPatch], None]], RunResult],
) -> None:
    result = with_fault(plant)
    assert checker in {violation.checker for violation in result.violations}, result.violations


@pytest.mark.req("T10")
def test_an_owner_that_forgets_its_topics_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OwnTopics, "restore", lambda self, record, wall_ns: b"")
    result = play(load("topics-directories"), 1)
    assert {violation.checker for violation in result.violations} == {"found"}
    assert "found nothing without a directory" in str(result.violations[0])


# -- scenario files -----------------------------------------------------------------------------------------------

WRONG = """
[scenario]
name = "wrong"
[topology.brokers.a]
[[directory]]
name = "tdn"
brokers = ["b"]
[[entity]]
name = "alice"
brokers = ["a"]
[[topic]]
name = "heat"
owner = "alcie"
[[grant]]
name = "g"
topic = "haet"
holder = "alice"
using = "h"
[[search]]
entity = "bob"
"""


def test_what_is_wrong_with_tables_about_topics_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(WRONG)
    told = "\n".join(caught.value.problems)
    for part in (
        "need the table [topics]",
        "directory[0].brokers has 'b'",
        "entity[0].brokers has 'a', whose auth is not certificate",
        "topic[0].owner = 'alcie': did you mean 'alice'?",
        "grant[0].topic = 'haet': did you mean 'heat'?",
        "grant[0].using = 'h'",
        "search[0].entity = 'bob'",
    ):
        assert part in told
