"""Loss of any message, and crashes at any step, end in a valid advertisement or in an error with a reason."""

from __future__ import annotations

import pytest

from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.creation import OwnTopic, TopicCreation
from heliograph.discovery.topics.messages import TopicKind
from heliograph.errors import NotConnectedError, RefusedError
from tests.discovery.topics.stage import WALL_NS, TopicStage, a_creation

KINDS = (
    TopicKind.LOCATE,
    TopicKind.LOCATED,
    TopicKind.CREATE,
    TopicKind.CREATED,
    TopicKind.ADVERTISE,
    TopicKind.ACKNOWLEDGED,
    TopicKind.SEARCH,
    TopicKind.FOUND,
)


def play(seed: int) -> str:
    """One run with loss and crashes that the seed draws; what it came to. Anything else fails an assertion."""
    loss = 0.05 + 0.25 * (seed % 10) / 9
    lossy = KINDS if seed % 3 == 0 else (KINDS[seed % len(KINDS)],)
    directories = {f"tdn-{number}": TopicDirectoryConfig() for number in range(1, 2 + seed % 2)}
    stage = TopicStage(
        1 + seed % 3, directories=directories, seed=seed, losses=dict.fromkeys(lossy, loss), delay_ms=5, settle_s=2
    )
    chance = stage.world.random("crashes")
    conversation = stage.begin("alice", lambda say, seed: TopicCreation(say, a_creation(), seed, timeout_ms=15_000))
    if seed % 4 == 1:  # a directory crashes at a moment that is drawn, and comes back
        stage.run(chance.random() * 0.12)
        host = stage.world.hosts["tdn-1"]
        stage.world.crash(host)
        stage.run(chance.random())
        stage.world.start(host)
    elif seed % 4 == 2:  # the entity does, and does not begin again
        stage.run(chance.random() * 0.12)
        stage.world.crash(stage.world.hosts["alice"])
        stage.run(1)
        stage.world.start(stage.world.hosts["alice"])
    elif seed % 4 == 3 and seed % 3 == 1:  # all directories, for good
        stage.run(chance.random() * 0.12)
        for name in directories:
            stage.world.crash(stage.world.hosts[name])
    stage.finish(conversation, 16)
    finder = stage.search("bob", timeout_ms=8_000)
    found = finder.take()
    assert conversation.is_over or seed % 4 == 2
    if isinstance(conversation.result, OwnTopic):
        assert conversation.result.advertisement.creator == "alice"
    elif conversation.is_over:
        assert isinstance(conversation.error, NotConnectedError | RefusedError)
        assert conversation.error.reason.word
    for one in found:
        assert one.owner(stage.machine("bob").statements, WALL_NS).identity.entity == "alice"
    assert finder.result is not None or isinstance(finder.error, NotConnectedError | RefusedError)
    assert stage.world.faults() == []
    return f"{'created' if conversation.result else 'failed'} {len(found)}"


@pytest.mark.req("T13")
@pytest.mark.parametrize("seed", range(1, 11))
def test_loss_and_crashes_are_survived_or_told(seed: int) -> None:
    play(seed)


@pytest.mark.req("T13")
def test_with_a_third_of_everything_lost_topics_are_still_created_and_found() -> None:
    stage = TopicStage(2, losses=dict.fromkeys(KINDS, 0.3), seed=5)
    assert stage.create(timeout_ms=20_000).error is None
    assert stage.search("bob", timeout_ms=20_000).result.topics == 1


def test_a_run_repeats_to_the_last_byte() -> None:
    """Seals are drawn from the seed, so digests are equal."""
    digests = []
    for _ in range(2):
        stage = TopicStage(2, losses=dict.fromkeys(KINDS, 0.2), seed=3)
        stage.create()
        stage.search("bob")
        digests.append(stage.world.digest.hex())
    assert digests[0] == digests[1]


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(11, 211))
def test_loss_and_crashes_are_survived_or_told_with_many_seeds(seed: int) -> None:
    play(seed)
