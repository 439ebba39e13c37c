"""Shrinking: the few steps, of all that came before harm was done, that do the same harm at a new network.

In:    the inputs of a round up to the one that did harm.
Out:   one Input with few steps; None if they do no harm again within the time that there is.
State: none.
Not here: shooting rounds and keeping what was found (fuzz.py).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import replace

from tests.conformance import grammar
from tests.fuzz.driver import MS
from tests.fuzz.network_target import LYING, NetworkTarget
from tests.fuzz.steps import Input, Step

SHRINKING_S = 60.0


def at(given: Input, now: int) -> Input:
    """The same input, not before this time: what is signed is valid at its time only."""
    return Input(given.kind, [Step(0, "until", word=str(now // MS)), *given.steps])


def fault_of(given: Input, lies: bool | None = None) -> str | None:
    """What is wrong after this input, shot at a new network; None if nothing is."""
    if lies is None:
        lies = any(step.verb == "dial" and step.word == LYING for step in given.steps)
    target = NetworkTarget(lies)
    try:
        target.shoot(target.knowledge.filled(given))
        target.canary.check()
        target.finish()
    except Exception as error:  # whatever it is, it is harm
        return str(error)
    return None


def smallest(shot: list[Input], lies: bool) -> Input | None:
    """The last input, or as many before it as it takes; then without the steps and frames that make no difference."""
    until = time.monotonic() + SHRINKING_S

    def harms(given: Input) -> bool:
        return time.monotonic() < until and fault_of(given, lies) is not None

    found = next((given for given in _last(shot) if harms(given)), None)
    if found is None:
        return None
    found = _without_steps(found, harms)
    return _without_frames(found, harms)


def _last(shot: list[Input]) -> list[Input]:
    """The last one, the last two, four, …, all."""
    sizes = [1 << power for power in range(len(shot).bit_length())] + [len(shot)]
    return [_joined(shot[-size:]) for size in sizes if size <= len(shot)]


def _joined(some: list[Input]) -> Input:
    """Several inputs as one; every peer keeps its own links."""
    steps = [replace(step, peer=step.peer + 10 * number) for number, one in enumerate(some) for step in one.steps]
    return Input(some[-1].kind, steps)


def _without_steps(given: Input, harms: Callable[[Input], bool]) -> Input:
    """Leave out steps: halves, quarters, …, single ones."""
    size = len(given.steps) // 2
    while size:
        start = 0
        while start < len(given.steps):
            fewer = Input(given.kind, given.steps[:start] + given.steps[start + size :])
            if fewer.steps and harms(fewer):
                given = fewer
            else:
                start += size
        size //= 2
    return given


def _without_frames(given: Input, harms: Callable[[Input], bool]) -> Input:
    """Leave out whole frames of what is sent."""
    for number, step in enumerate(given.steps):
        try:
            frames = [frame.raw for frame in grammar.whole_frames(step.data)] if step.verb == "bytes" else []
        except (grammar.EndError, AssertionError, ValueError, struct.error):
            continue  # these bytes are no frames
        for frame in frames[::-1]:
            steps = list(given.steps)
            steps[number] = replace(step, data=steps[number].data.replace(frame, b"", 1))
            if steps[number].data and harms(fewer := Input(given.kind, steps)):
                given = fewer
                step = steps[number]
    return given
