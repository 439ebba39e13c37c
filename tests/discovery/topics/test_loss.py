"""Loss of any message, and crashes at any step, end in a valid advertisement or in an error with a reason."""

from __future__ import annotations

import pytest

from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.discovery.topics.creation import ADVERTISING, CREATING, LOCATING, OwnTopic, TopicCreation
from heliograph.discovery.topics.messages import TopicKind
from heliograph.errors import NotConnectedError, Reason, RefusedError
from tests.discovery.topics.stage import WALL_NS, TopicStage, a_creation
from tests.many import cases

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


STEPS = (LOCATING, CREATING, ADVERTISING)
LIFETIME_S = 40


def play(seed: int) -> str:
    """One run with loss and crashes that the seed chooses; what it came to. Anything else fails an assertion.

    Every kind of message, or one of them, is lost at up to 30 %. A directory crashes at each step and comes back, the
    entity does and does not begin again, all directories crash for good, or there was never one.
    """
    loss = 0.05 + 0.25 * (seed % 10) / 9
    lossy = KINDS if seed % 3 == 0 else (KINDS[seed % len(KINDS)],)
    fault, step = seed % 5, STEPS[seed // 5 % len(STEPS)]
    directories = {f"tdn-{number}": TopicDirectoryConfig() for number in range(1, 2 + seed % 2)} if fault != 4 else {}
    stage = TopicStage(
        1 + seed % 3, directories=directories, seed=seed, losses=dict.fromkeys(lossy, loss), delay_ms=5, settle_s=2
    )
    wanted = a_creation(lifetime_s=LIFETIME_S)
    conversation = stage.begin("alice", lambda say, seed: TopicCreation(say, wanted, seed, timeout_ms=12_000))
    assert isinstance(conversation, TopicCreation)
    if fault in (1, 2, 3):
        reach(stage, conversation, step)
        crashed = {1: ["tdn-1"], 2: ["alice"], 3: list(directories)}[fault]
        for name in crashed:
            stage.world.crash(stage.world.hosts[name])
        stage.run(stage.world.random("crashes").random())
        for name in crashed if fault != 3 else ():
            stage.world.start(stage.world.hosts[name])
    stage.finish(conversation, 13)
    assert conversation.is_over or fault == 2
    found = judge(stage, conversation, fault)
    nothing_is_left(stage, [] if fault == 3 else list(directories))
    return f"{'created' if conversation.result else 'failed'} {found}"


def reach(stage: TopicStage, conversation: TopicCreation, step: str) -> None:
    """Let time pass until a creation is at this step, and a message of it on its way."""
    for _ in range(5_000):
        if conversation.step == step or conversation.is_over:
            break
        stage.run(0.001)
    stage.run(stage.world.random("crashes").random() * 0.012)


def judge(stage: TopicStage, conversation: TopicCreation, fault: int) -> int:
    """A valid advertisement, or a failure with a reason; and whatever is found is alice's. How many were found."""
    if isinstance(conversation.result, OwnTopic):
        assert conversation.result.advertisement.creator == "alice"
    elif conversation.is_over:
        assert isinstance(conversation.error, NotConnectedError | RefusedError)
        assert conversation.error.reason.word
    assert fault != 4 or conversation.error.reason is Reason.DIRECTORIES_MISSING  # type: ignore[union-attr]
    finder = stage.search("bob", timeout_ms=8_000)
    found = finder.take()
    for one in found:
        assert one.owner(stage.machine("bob").statements, WALL_NS).identity.entity == "alice"
    assert len(found) <= 1
    assert finder.result is not None or isinstance(finder.error, NotConnectedError | RefusedError)
    return len(found)


def nothing_is_left(stage: TopicStage, directories: list[str]) -> None:
    """When the topic's life is over, no directory has anything of it."""
    stage.run(LIFETIME_S + 2)
    for name in directories:
        report = stage.machine(name).report("overview")
        assert (report["topics"], report["searches_under_way"], report["watches"]) == (0, 0, 0)
    assert stage.world.faults() == []


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


@pytest.mark.parametrize("seed", cases(sweep=range(11, 61), soak=range(61, 211)))
def test_loss_and_crashes_are_survived_or_told_with_many_seeds(seed: int) -> None:
    play(seed)
