"""The simulator finds a store that acknowledges too early, and tells damage from loss."""

from __future__ import annotations

from importlib.resources import files

import pytest

from heliograph.sim.run import play
from heliograph.sim.scenario_files import parse
from tests.sweep.__main__ import idle

pytestmark = pytest.mark.req("O7")


def text_of(name: str) -> str:
    return files("heliograph.sim").joinpath("scenarios", f"{name}.toml").read_text("utf-8")


def test_an_acknowledgement_before_the_data_is_durable_is_found() -> None:
    text = text_of("stores-crashes").replace('patterns = ["orders/#"]', 'patterns = ["orders/#"]\nunsafe_ack = true')
    scenario = parse(text.replace("disk_ms = 5", "disk_ms = 200"))
    blamed = [violation.checker for seed in range(1, 6) for violation in play(scenario, seed).violations]
    assert "kept" in blamed


@pytest.mark.req("N10")
def test_damaged_records_are_told_as_gaps_and_everything_else_is_read() -> None:
    scenario = parse(text_of("stores-damage"))
    missed = []
    for seed in range(1, 5):
        result = play(scenario, seed, keep_journal=True)
        assert result.ok, result.violations
        missed += [entry for entry in result.journal.entries if entry[2] == "missed"]
    assert missed


def test_a_run_in_which_nothing_failed_or_little_was_acknowledged_proves_nothing() -> None:
    text = text_of("stores-crashes")
    calm = parse(text[: text.index("[[fault]]")] + text[text.index("[checks]") :])
    assert idle(play(calm, 1)) == ["nothing was killed and no disk failed"]
    few = parse(text.replace("count = 250", "count = 5"))
    assert idle(play(few, 1)) == ["only 355 were acknowledged"]


def test_a_publisher_that_is_told_of_less_than_it_published_is_found() -> None:
    text = text_of("stores-clients").replace("duration_s = 14", "duration_s = 1")
    text = text.replace("settle_s = 16", "settle_s = 1")
    calm = parse(text[: text.index("[[fault]]")] + text[text.index("[checks]") :])
    assert "kept" in [violation.checker for violation in play(calm, 1).violations]
