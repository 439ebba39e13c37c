"""The fuzzer: bad inputs by the million. ``python -m tests.fuzz.fuzz --inputs 1000000 --seed 1`` (``make fuzz``).

In:    a number of inputs and a seed; the same seed shoots the same inputs.
Out:   inputs by kind, reasons that were met; exit code 1 if an input did harm (it is then kept in corpus/, and the
       command that shoots it again is printed) or a reason was not met.
State: none.
Not here: inputs (inputs.py), what is shot at and what counts as harm (network_target.py, live_target.py), making an
          input that did harm smaller (shrinking.py).

Inputs are shot in rounds, each at a new network, so that all cores can work and a round can be repeated alone. In one
round of five some who dial are proven brokers that lie. One round of twenty goes over real TCP and TLS to a process.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from traceback import format_exc

from tests.fuzz import inputs, shrinking
from tests.fuzz.live_target import SETTINGS, LiveTarget
from tests.fuzz.network_target import NetworkTarget
from tests.fuzz.steps import Input
from tests.wire.live_broker import live_broker

CORPUS = Path(__file__).parent / "corpus"
ROUND = 1_000  # inputs
LYING_EVERY, LIVE_EVERY = 5, 20  # rounds
ENOUGH = 10_000  # inputs that meet every reason
FAULTS_MAX = 3  # rounds that did harm, after which no more are begun
TOLD_EVERY_S = 5.0

# Every reason of the protocol page that a peer's bytes, or their absence, can cause. Those that are missing here need
# something else: an operator's command, a full machine, a fault of the network, or a broker that dials.
REASONS = (
    "frame_too_short", "frame_over_limit", "topic_over_frame", "headers_over_frame", "kind_unknown", "kind_unexpected",
    "flags_unknown", "body_malformed", "version_unsupported", "feature_unsupported", "origin_foreign", "topic_invalid",
    "filter_invalid", "language_unsupported", "subscription_taken", "subscription_unknown", "headers_malformed",
    "credential_missing", "credential_wrong", "publish_denied", "subscribe_denied", "ask_denied", "handshake_too_slow",
    "handshake_over_budget", "subscriptions_over_limit", "slow_consumer", "silent", "publication_expired", "duplicate",
    "requests_over_limit", "condition_invalid", "goodbye", "taken_over", "service_unknown", "question_unknown",
    "condition_over_limit", "role_missing", "responders_missing", "name_taken", "cluster_full",
    "resource_call_malformed", "resource_unknown", "store_unknown", "name_unknown", "channels_over_limit",
    "batch_incomplete", "sender_unproven", "certificate_malformed", "certificate_untrusted", "signature_wrong",
    "seal_broken", "grant_invalid", "grant_foreign", "grant_too_wide", "possession_unproven", "signer_no_directory",
    "topic_unknown",
)  # fmt: skip


@dataclass
class Outcome:
    """What became of one round or of many."""

    inputs: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        """Reasons that no input caused, if there were enough inputs to cause each."""
        return [reason for reason in REASONS if not self.reasons[reason] and self.inputs >= ENOUGH]

    def add(self, other: Outcome) -> None:
        """Sum up."""
        self.inputs += other.inputs
        self.kinds += other.kinds
        self.reasons += other.reasons
        self.faults += other.faults

    def __str__(self) -> str:
        others = {reason: count for reason, count in sorted(self.reasons.items()) if reason not in REASONS}
        lines = [f"{reason:26}{self.reasons[reason]:>12,}" for reason in REASONS]
        lines += [f"{reason:26}{count:>12,}  (not asked for)" for reason, count in others.items()]
        lines += ["", *(f"{kind:26}{count:>12,}" for kind, count in sorted(self.kinds.items()))]
        lines += [f"not met: {', '.join(self.missing)}"] if self.missing else []
        return "\n".join([*lines, *self.faults])


def shoot_round(seed: int, number: int, count: int = ROUND, corpus: Path = CORPUS) -> Outcome:
    """One round at a new network; it ends at the first input that does harm."""
    dice = random.Random(f"{seed}/{number}")
    lies = number % LYING_EVERY == LYING_EVERY - 1
    outcome = Outcome()
    target = NetworkTarget(lies)
    shot: list[Input] = []
    for _ in range(count):
        given = inputs.make(dice, target.knowledge, lies)
        shot.append(shrinking.at(given, target.driver.now))
        outcome.kinds[given.kind] += 1
        fault = _fault(partial(target.shoot, given))
        if fault:
            break
    else:
        fault = _fault(target.finish)
    if fault:
        again = f"python -m tests.fuzz.fuzz --seed {seed} --round {number} --inputs {len(shot)}"
        outcome.faults.append(_kept([target.knowledge.named(each) for each in shot], lies, fault, again, corpus))
    outcome.inputs = len(shot)
    outcome.reasons = target.reasons
    return outcome


def _fault(call: Callable[[], None]) -> str:
    """The traceback of what this raises: whatever it is, it is the product's fault. Empty if it does no harm."""
    try:
        call()
    except Exception:
        return format_exc()
    return ""


def _kept(shot: list[Input], lies: bool, fault: str, again: str, corpus: Path) -> str:
    """Keep what did harm, as small as it quickly gets; returns what there is to say about it."""
    small = shrinking.smallest(shot, lies)
    if small is None:
        return f"harm that could not be repeated with fewer inputs: {again}\n{fault}"
    place = save(small, f"{fault.splitlines()[-1]}\nafter: {again}", corpus)
    return f"an input did harm: python -m tests.fuzz.fuzz --replay {place}\nafter: {again}\n{fault}"


def save(given: Input, why: str, corpus: Path) -> Path:
    """Write an input that did harm to a file."""
    place = corpus / f"{sha256(str(given).encode()).hexdigest()[:12]}.txt"
    corpus.mkdir(exist_ok=True)
    comment = "\n".join(f"# {line[:300]}" for line in why.splitlines()[:5])
    place.write_text(f"{given}{comment}\n")
    return place


def shoot_live(seed: int, number: int, count: int, corpus: Path = CORPUS) -> Outcome:
    """One round at a broker process, over TCP and TLS."""
    dice = random.Random(f"{seed}/{number}")
    outcome = Outcome()
    with _live() as target:
        for shots in range(count):
            given = inputs.frames(dice, live=True)
            outcome.kinds[f"{given.kind}, live"] += 1
            try:
                target.shoot(given, "tls" if shots % 2 else "tcp")
            except Exception as error:  # as above
                place = save(given, f"live, seed {seed}, round {number}, input {shots}: {error!r}", corpus)
                outcome.faults.append(f"an input did harm to a live broker and is kept in {place}:\n{format_exc()}")
                break
        else:
            target.finish()
        outcome.inputs = sum(outcome.kinds.values())
        outcome.reasons = target.reasons
    return outcome


@contextmanager
def _live() -> Iterator[LiveTarget]:
    with tempfile.TemporaryDirectory() as folder, live_broker(Path(folder), SETTINGS, log_level="info") as broker:
        yield LiveTarget(broker)


def run(count: int, seed: int) -> Outcome:
    """So many inputs, on all cores; tells how far it is."""
    rounds = [(number, min(ROUND, count - number * ROUND)) for number in range(-(-count // ROUND))]
    sum_, began, told = Outcome(), time.monotonic(), 0.0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        tasks = [pool.submit(_shoot, seed, number, some) for number, some in rounds]
        for task in as_completed(tasks):
            sum_.add(task.result())
            passed = time.monotonic() - began
            if passed - told >= TOLD_EVERY_S or sum_.faults:
                told = passed
                _tell(f"{sum_.inputs:>11,} of {count:,} inputs {_pace(sum_.inputs, count, passed)}")
            if len(sum_.faults) >= FAULTS_MAX:
                pool.shutdown(cancel_futures=True)
                break
    return sum_


def _shoot(seed: int, number: int, count: int) -> Outcome:
    is_live = number % LIVE_EVERY == LIVE_EVERY - 2
    return (shoot_live if is_live else shoot_round)(seed, number, count)


def _pace(done: int, count: int, passed: float) -> str:
    rate = done / max(passed, 0.001)
    left = (count - done) / max(rate, 0.001)
    return (
        f"{rate:>8,.0f}/s, about {left / 60:.0f} min left"
        if left >= 90
        else f"{rate:>8,.0f}/s, about {left:.0f} s left"
    )


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """What ``make fuzz`` calls."""
    parser = argparse.ArgumentParser(description="Shoot bad inputs at a network of brokers and at a broker process.")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--round", type=int, help="only this round, in this process")
    parser.add_argument("--replay", type=Path, help="only the input in this file")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        given = Input.read(arguments.replay.read_text())
        fault = shrinking.fault_of(given)
        _tell(fault or "no harm")
        return 1 if fault else 0
    began = time.monotonic()
    if arguments.round is not None:
        outcome = shoot_round(arguments.seed, arguments.round, min(arguments.inputs, ROUND))
        _tell(str(outcome))
        return 1 if outcome.faults else 0
    outcome = run(arguments.inputs, arguments.seed)
    passed = time.monotonic() - began
    _tell(f"{outcome}\n{outcome.inputs:,} inputs, {passed:.0f} s, seed {arguments.seed}, {len(outcome.faults)} faults")
    return 1 if outcome.faults or outcome.missing else 0


if __name__ == "__main__":
    sys.exit(main())
