"""A directory in its own process keeps its links to brokers while certificates are renewed, and loses them if not."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.sim.clock import EPOCH_NS
from heliograph.sim.loop import MILLISECOND
from tests.discovery.topics.stage import TopicStage

ENDS_S = 70
LATER_S = 10_000


def ending(seconds: float) -> int:
    return EPOCH_NS // MILLISECOND + int(seconds * 1_000)


@pytest.mark.req("O6", "T4")
@pytest.mark.parametrize("whose", ["tdn-1", "b1"])
def test_a_directory_dials_anew_before_a_certificate_ends(whose: str) -> None:
    stage = TopicStage(directories={}, entities=(), settle_s=0.01)
    host = stage.add_directory("tdn-1", TopicDirectoryConfig(), "b1")
    stage.world.hosts[whose].expires_ms = ending(ENDS_S)
    stage.run(5)
    directory: Any = host.seats[-1].machine
    anchors = directory._anchors
    first = [session.link for session in anchors.sessions]
    stage.world.hosts[whose].expires_ms = ending(LATER_S)
    links = []
    for _ in range(140):
        stage.run(0.5)
        links.append([session.link for session in anchors.sessions])
    assert all(links), "it was linked all the time"
    assert len(first) == 1
    assert first[0] not in links[-1]
    assert len(links[-1]) == 1


@pytest.mark.req("O6", "T4")
@pytest.mark.parametrize("whose", ["tdn-1", "b1"])
def test_without_a_renewed_certificate_its_link_ends(whose: str) -> None:
    stage = TopicStage(directories={}, entities=(), settle_s=0.01)
    host = stage.add_directory("tdn-1", TopicDirectoryConfig(), "b1")
    stage.world.hosts[whose].expires_ms = ending(20)
    stage.run(18)
    directory: Any = host.seats[-1].machine
    anchors = directory._anchors
    assert anchors.sessions
    stage.run(4)
    assert not anchors.sessions
