"""The real broker against the oracle, over random sessions of several clients.

In:    stories (stories.py): any order of steps, any split of the streams, press and take at any moment.
Out:   claims: on every link both say the same, in the same order; links end for the same reasons; the same are held.
State: none beyond one story.
Not here: the pair of brokers (sessions.py), the oracle (oracle.py), time (test_bad_input.py).

A failure prints the shortest story that still fails, one step per line, and what each broker said on each link.
HELIOGRAPH_STORIES=10000 tells more of them than the default.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.broker.forms import FORMS, use
from tests.conformance import steps, stories
from tests.conformance.oracle import Said
from tests.conformance.sessions import Pair
from tests.conformance.stories import Story

STORIES = int(os.environ.get("HELIOGRAPH_STORIES", "100"))  # per theme
MUST_HAPPEN = {  # what at least one story of each theme shows
    "plain": {"confirmed", "pong", "topic_invalid", "filter_invalid", "subscription_unknown", "language_unsupported"},
    "calm": {"confirmed", "pong", "subscription_unknown"},
    "access": {"publish_denied", "subscribe_denied", "ask_denied", "service_unknown", "subscriptions_over_limit"},
    "splits": {"pong", "taken_over", "version_unsupported", "feature_unsupported"},
    "comings": {"taken_over", "goodbye", *steps.BREAKS.values()},
    "press": {"pong", "confirmed", "taken_over"},
    "contents": {"confirmed", "pong", "condition_invalid", "body_malformed", "language_unsupported", "publish_denied"},
    "overflow": {"slow_consumer", "taken_over"},
}


def judge(story: Story) -> tuple[Pair, list[str]]:
    """Take both brokers through a story; every way in which they differ."""
    pair = Pair(story.settings, story.limits)
    for step in story.steps:
        pair.go(step)
    pair.finish()
    if pair.oracle.undecided:
        return pair, []
    problems = pair.problems
    for link, model in pair.oracle.links.items():
        problem = difference(model.said, pair.real(link), may_be_cut=link in pair.vanished)
        if problem:
            problems.append(f"link {link} of {model.entity}: {problem}")
        if pair.hangups.get(link) != model.ended:
            problems.append(f"link {link} of {model.entity} ended with {pair.hangups.get(link)}, not {model.ended}")
    return pair, problems


def difference(expected: list[Said], real: list[Said], may_be_cut: bool) -> str:
    """Where the two part; what may be left out need not be there, and a link that was cut may miss the end."""
    heard = iter(real)
    following = next(heard, None)
    for position, said in enumerate(expected):
        if said == following:
            following = next(heard, None)
        elif following is None and may_be_cut:
            return ""
        elif said.must_be_said:
            return f"expected {said!r} as number {position}, heard {following!r}"
    return "" if following is None else f"heard {following!r}, which nothing calls for"


def describe(story: Story) -> str:
    """A story that fails, for somebody who wants to know why."""
    pair, problems = judge(story)
    lines = ["", f"rules: {story.settings.rules}, otherwise {story.settings.default}", f"limits: {story.limits}"]
    lines += [f"    {step}" for step in story.steps]
    for link, model in pair.oracle.links.items():
        lines += [f"link {link} of {model.entity}", f"  should hear {model.said}", f"  and heard   {pair.real(link)}"]
    return "\n".join([*lines, *problems])


def test_the_oracle_imports_nothing_of_ours() -> None:
    for file in ("oracle.py", "grammar.py", "wishes.py"):
        source = (Path(__file__).parent / file).read_text()
        imported = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
        assert imported
        assert not any("heliograph" in line for line in imported)


@pytest.mark.req("N6", "N9", "N15", "O6", "O8")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("theme", stories.THEMES)
def test_the_broker_says_what_the_oracle_says(theme: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(form, monkeypatch)
    heard: Counter[str] = Counter()
    short = 0
    for seed in range(STORIES):
        story = stories.tell(theme, seed)
        pair, problems = judge(story)
        if problems:
            shortest = stories.shrink(story, lambda shorter: bool(judge(shorter)[1]))
            pytest.fail(f"theme {theme!r}, seed {seed}{describe(shortest)}", pytrace=False)
        short += pair.short
        for link in pair.oracle.links:
            heard.update(said.reason or said.what for said in pair.real(link))
    assert heard["event"] > 10 * STORIES  # or the stories mean nothing
    assert short > STORIES // 4 or theme != "calm"
    assert MUST_HAPPEN[theme] <= set(heard)
