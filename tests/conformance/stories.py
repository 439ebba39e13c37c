"""Stories: random sessions that are likely to mean something, and the shortest one that still shows a fault.

In:    a seed and a theme.
Out:   Settings and a list of steps; shrink() cuts a failing story down.
State: none beyond one story's dice.
Not here: carrying a story out (sessions.py), judging it (test_conformance.py).

Steps are not drawn evenly. A story has a few topics, filters are made from them by widening, and numbers go on from
where they were, so that most publications reach somebody, and duplicates, gaps and denials happen in every story.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heliograph.broker.config import LimitsConfig
from tests.conformance.oracle import Rule, Settings
from tests.conformance.steps import (
    BREAKS,
    CLIENTS,
    Ask,
    Break,
    Dial,
    Flush,
    Frames,
    Leave,
    Press,
    Publish,
    Slowly,
    Step,
    Subscribe,
    Take,
    Unsubscribe,
)

BAD_TOPICS = ("", "a//b", "/a", "a/", "a/+", "#", "a\x07", "a/\u2028", "/".join("a" * 33), "ä" * 513)
BAD_FILTERS = ("", "a//b", "a/#/b", "a+", "b#", "a\x07", "+a/b")
BAD_HELLOS: tuple[tuple[tuple[str, Any], ...], ...] = (
    (("versions", (2, 3)),),
    (("needs", ("time-travel",)),),
    (("versions", (9, 1)),),  # one in common is enough
    (("features", ("time-travel",)),),  # wanted, not needed
)
THEMES: dict[str, dict[str, int]] = {  # how often each step is taken
    "plain": {"publish": 40, "subscribe": 12, "unsubscribe": 6, "flush": 4, "take": 8, "mistake": 4, "expiring": 3},
    "calm": {
        "single": 60,
        "take": 40,
        "publish": 4,
        "subscribe": 3,
        "unsubscribe": 6,
        "flush": 4,
        "press": 4,
        "dial": 1,
    },
    "access": {"publish": 40, "subscribe": 20, "unsubscribe": 4, "ask": 4, "flush": 4, "take": 8, "mistake": 2},
    "splits": {"publish": 20, "slowly": 40, "subscribe": 6, "flush": 6, "take": 8, "dial": 2, "break": 1},
    "comings": {"publish": 30, "subscribe": 14, "dial": 8, "leave": 6, "break": 6, "slowly": 4, "take": 8, "press": 4},
    "press": {"publish": 50, "press": 14, "subscribe": 6, "unsubscribe": 3, "flush": 6, "take": 10, "dial": 1},
    "contents": {
        "publish": 40,
        "subscribe": 20,
        "unsubscribe": 8,
        "slowly": 8,
        "flush": 4,
        "take": 6,
        "mistake": 4,
        "expiring": 3,
        "burst": 3,
        "dial": 1,
        "leave": 1,
    },
    "overflow": {"publish": 60, "press": 12, "subscribe": 6, "flush": 2, "take": 10, "dial": 2, "leave": 1},
}


ASKING = {"contents": 0.7, "access": 0.3, "splits": 0.3, "press": 0.3}  # how many subscriptions have a condition
BAD_CONDITIONS = ("disk >", "disk 3", "> 3", "disk > 3 and", "disk > 3 disk < 9", "disk = 'x", "disk ~ 3", "'x' = 3")
VALUES = ("1", "2.5", "-3", "200", "'a'", "'ab'", "''", "true", "false", "9223372036854775807")
HEADERS = ("1", "2", "2.5", "-3", "200", '"a"', '"abc"', '""', "true", "false", "null", "[1]", "9223372036854775807",
           "1180591620717411303424", "200.0")  # fmt: skip
NOT_HEADERS = ("", "{", "[]", '"disk"', '{"disk": }', "null")


@dataclass
class Story:
    """One random session."""

    settings: Settings
    limits: LimitsConfig
    steps: list[Step]


def tell(theme: str, seed: int) -> Story:
    """The story of this theme and seed."""
    return _Teller(theme, random.Random(f"{theme} {seed}")).story()


def shrink(story: Story, fails: Callable[[Story], bool]) -> Story:
    """The same failure with as few steps and rules as cutting finds."""
    rules = list(story.settings.rules)
    for rule in list(rules):
        fewer = [other for other in rules if other is not rule]
        shorter = Story(_with_rules(story.settings, fewer), story.limits, story.steps)
        if fails(shorter):
            rules, story = fewer, shorter
    size = len(story.steps) // 2
    while size:
        start = 0
        while start < len(story.steps):
            shorter = Story(story.settings, story.limits, story.steps[:start] + story.steps[start + size :])
            if fails(shorter):
                story = shorter
            else:
                start += size
        size //= 2
    return story


def _with_rules(settings: Settings, rules: list[Rule]) -> Settings:
    return Settings(**{**settings.__dict__, "rules": tuple(rules)})


class _Teller:
    def __init__(self, theme: str, dice: random.Random) -> None:
        self.theme = theme
        self.dice = dice
        self.topics = [self._topic() for _ in range(5)]
        self.next = dict.fromkeys(CLIENTS, dice.choice([0, 1, 1_000, 2**64 - 40]))

    def story(self) -> Story:
        dice, weights = self.dice, THEMES[self.theme]
        limits = LimitsConfig(gaps_max=dice.choice([1, 2, 3, 1_024]))
        if self.theme == "overflow":
            limits = LimitsConfig(queue_frames_max=dice.choice([1, 4, 9]))
        steps: list[Step] = [Dial(name, dice.random() < 0.5) for name in CLIENTS]
        steps += [self._subscribe() for _ in range(dice.randint(1, 2) if self.theme == "calm" else dice.randint(2, 6))]
        for kind in dice.choices(list(weights), list(weights.values()), k=dice.randint(10, 80)):
            steps.append(getattr(self, f"_{kind}")())
            if self.theme == "calm":
                steps.append(Take())
        per_link = dice.choice([3, 100_000])
        guarded = self.theme == "access" or (self.theme == "contents" and dice.random() < 0.3)
        settings = Settings(
            rules=tuple(self._rule() for _ in range(dice.randint(1, 5))) if guarded else (),
            default="deny" if self.theme == "access" and dice.random() < 0.3 else "allow",
            subscriptions_per_link_max=per_link,
            gaps_max=limits.gaps_max,
            queue_frames_max=limits.queue_frames_max,
        )
        values = {name: getattr(limits, name) for name in limits.__slots__}
        return Story(settings, LimitsConfig(**{**values, "subscriptions_per_link_max": per_link}), steps)

    # -- what things are called -------------------------------------------------------------------------------

    def _client(self) -> str:
        return self.dice.choice(list(CLIENTS))

    def _topic(self) -> str:
        root = self.dice.choice(["a", "a", "a", "b", "b", "System" if self.theme == "access" else "b"])
        return "/".join([root, *self.dice.choices(["a", "b", "ä"], k=self.dice.randint(0, 2))])

    def _filter(self) -> str:
        """A topic of the story, with levels made wild."""
        dice = self.dice
        levels = [level if dice.random() < 0.7 else "+" for level in dice.choice(self.topics).split("/")]
        if dice.random() < 0.3:
            levels[dice.randint(0, len(levels)) :] = ["#"]
        return "/".join(levels)

    # -- steps ------------------------------------------------------------------------------------------------

    def _publish(self) -> Publish:
        dice, client = self.dice, self._client()
        count = dice.randint(1, 6)
        jumps = [0] * 20 + [1, -1] if self.theme == "calm" else [0, 0, 0, 0, 0, 1, 2, 5, -1, -2, -4, -9]
        first = max(0, self.next[client] + dice.choice(jumps))
        first = min(first, 2**64 - 6)
        self.next[client] = max(self.next[client], first + count)
        return Publish(client, dice.choice(self.topics), first, count, headers=self._headers())

    def _single(self) -> Publish:
        event = self._publish()
        return Publish(event.client, event.topic, event.first, 1, headers=event.headers)

    def _burst(self) -> Publish:
        """More than a broker works off in one go."""
        event = self._publish()
        first, count = min(event.first, 2**64 - 200), self.dice.choice([9, 80, 150])
        self.next[event.client] = max(self.next[event.client], first + count)
        return Publish(event.client, event.topic, first, count, headers=event.headers)

    def _expiring(self) -> Publish:
        event = self._publish()
        return Publish(event.client, event.topic, event.first, event.count, self.dice.choice([-60, 60]))

    def _headers(self) -> str:
        dice = self.dice
        if self.theme not in ASKING:
            return ""
        if dice.random() < 0.1:
            return dice.choice(NOT_HEADERS)
        names = dice.sample(["disk", "system", "$y"], k=dice.randint(0, 3))
        return "{" + ", ".join(f'"{name}": {dice.choice(HEADERS)}' for name in names) + "}"

    def _condition(self) -> str:
        dice = self.dice
        return " and ".join(self._comparison() for _ in range(dice.choice([1, 1, 2, 3])))

    def _comparison(self) -> str:
        dice = self.dice
        name, value = dice.choice(["disk", "disk", "system"]), dice.choice(VALUES)
        ops = ["=", "!=", "<", "<=", ">", ">="]
        if value[0] == "'":
            ops.append("prefix")
        if value in ("true", "false"):
            ops = ["=", "!="]
        return f"{name} present" if dice.random() < 0.1 else f"{name} {dice.choice(ops)} {value}"

    def _mistake(self) -> Step:
        client = self._client()
        if self.dice.random() < 0.5:
            return Publish(client, self.dice.choice(BAD_TOPICS), min(self.next[client], 2**64 - 1))
        if self.dice.random() < 0.5:
            return Subscribe(client, 9, self.dice.choice(BAD_FILTERS))
        if self.theme in ASKING and self.dice.random() < 0.7:
            language = self.dice.choice(["predicates", "predicates", "topic"])
            return Subscribe(client, 9, self._filter(), language=language, where=self.dice.choice(BAD_CONDITIONS))
        return Subscribe(client, 9, self._filter(), language="prolog")

    def _subscribe(self) -> Subscribe:
        dice = self.dice
        policy = dice.choice(["drop_oldest", "drop_oldest", "hold", "disconnect"])
        asked = (self._client(), dice.randint(1, 5), self._filter(), policy, dice.random() < 0.7)
        if dice.random() < ASKING.get(self.theme, 0):
            return Subscribe(*asked, "predicates", self._condition())
        return Subscribe(*asked)

    def _unsubscribe(self) -> Unsubscribe:
        return Unsubscribe(self._client(), self.dice.randint(1, 5))

    def _flush(self) -> Flush:
        return Flush(self._client(), self.dice.choice([0, 1, 7, 2**64 - 1]))

    def _slowly(self) -> Slowly:
        makers: list[Callable[[], Frames]] = [self._publish, self._publish, self._subscribe, self._flush, self._dial]
        sizes = tuple(self.dice.choice([1, 3, 4, 27, 28, 29, 60, 150]) for _ in range(self.dice.randint(0, 5)))
        return Slowly(self.dice.choice(makers)(), sizes)

    def _dial(self) -> Dial:
        bad = self.dice.choice(BAD_HELLOS) if self.dice.random() < 0.2 else ()
        return Dial(self._client(), self.dice.random() < 0.5, bad)

    def _leave(self) -> Leave:
        return Leave(self._client(), self.dice.random() < 0.5)

    def _break(self) -> Break:
        return Break(self._client(), self.dice.choice(sorted(BREAKS)))

    def _ask(self) -> Ask:
        return Ask(self._client(), self.dice.choice(["admin", "oracle", "a"]))

    def _press(self) -> Press:
        return Press(self._client(), self.dice.random() < 0.6)

    def _take(self) -> Take:
        return Take()

    def _rule(self) -> Rule:
        dice = self.dice
        return Rule(
            dice.choice(["allow", "deny"]),
            dice.choice([("publish",), ("subscribe",), ("publish", "subscribe"), ("ask",)]),
            tuple(self._filter() for _ in range(dice.randint(1, 2))),
            dice.choice([("*",), ("*",), ("ann",), ("sensor-*",), ("role:admin",), ("bob", "root")]),
        )
