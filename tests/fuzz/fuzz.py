"""The fuzzer: bad bytes by the thousand. ``python -m tests.fuzz.fuzz --inputs 100000 --seed 1`` (``make fuzz``).

In:    a number of inputs and a seed; the same seed shoots the same inputs.
Out:   a table reason → count; exit code 1 if an input did harm (it is then kept in corpus/) or a reason was not met.
State: none.
Not here: inputs (inputs.py), brokers to shoot at and what counts as harm (targets.py).

One input in twenty goes over real TCP and TLS to a broker process, the others straight into the machine.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from traceback import format_exc

from tests.fuzz import inputs
from tests.fuzz.inputs import Input
from tests.fuzz.live_target import SETTINGS, LiveTarget
from tests.fuzz.targets import FaultError, MachineTarget
from tests.wire.live_broker import live_broker

CORPUS = Path(__file__).parent / "corpus"
LIVE_EVERY = 20  # inputs
TABLES_EVERY = 50

# Every reason of the protocol page that a peer's bytes, or their absence, can cause. Those that are missing here need
# something else: a certificate, an operator's command, a full machine, a fault of the network, or a broker that dials.
REASONS = (
    "frame_too_short", "frame_over_limit", "topic_over_frame", "headers_over_frame", "kind_unknown", "kind_unexpected",
    "flags_unknown", "body_malformed", "version_unsupported", "feature_unsupported", "origin_foreign", "topic_invalid",
    "filter_invalid", "language_unsupported", "subscription_taken", "subscription_unknown", "headers_malformed",
    "credential_missing", "credential_wrong", "publish_denied", "subscribe_denied", "ask_denied", "handshake_too_slow",
    "handshake_over_budget", "subscriptions_over_limit", "slow_consumer", "silent", "publication_expired", "duplicate",
    "requests_over_limit", "condition_invalid", "goodbye", "taken_over", "service_unknown", "question_unknown",
    "condition_over_limit", "role_missing", "responders_missing", "name_taken", "cluster_full",
)  # fmt: skip


class Outcome:
    """What became of a run."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.shots: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.faults: list[str] = []

    @property
    def missing(self) -> list[str]:
        """Reasons that no input caused."""
        return [reason for reason in REASONS if not self.reasons[reason]]

    def __str__(self) -> str:
        lines = [f"{reason:26}{self.reasons[reason]:>9,}" for reason in REASONS]
        lines += [f"{reason:26}{count:>9,}  (not asked for)" for reason, count in sorted(self.others.items())]
        shots = ", ".join(f"{count:,} {name}" for name, count in sorted(self.shots.items()))
        kinds = ", ".join(f"{count:,} {name}" for name, count in sorted(self.kinds.items()))
        lines += ["", f"shots: {shots}", f"inputs: {kinds}"]
        lines += [f"not met: {', '.join(self.missing)}"] if self.missing else []
        return "\n".join([*lines, *self.faults])

    @property
    def others(self) -> dict[str, int]:
        """Reasons that were met beyond those that must be."""
        return {reason: count for reason, count in self.reasons.items() if reason not in REASONS}


def run(count: int, seed: int, corpus: Path = CORPUS) -> Outcome:
    """Shoot so many inputs; stop at the first that does harm."""
    dice = random.Random(seed)
    outcome = Outcome()
    machine = MachineTarget()
    with _live() as live:
        for number in range(count):
            over_sockets = number % LIVE_EVERY == 0
            given = inputs.make(dice, live=over_sockets)
            outcome.kinds[given.kind] += 1
            outcome.shots["machine"] += not over_sockets
            try:
                if over_sockets:
                    live.shoot(given, "tls" if number % (2 * LIVE_EVERY) else "tcp")
                else:
                    machine.shoot(given)
                if number % TABLES_EVERY == 0:
                    machine.check_tables()
            except Exception as error:  # whatever it is, it is the broker's fault, and the input is worth keeping
                place = save(given, f"seed {seed}, input {number}: {error!r}", corpus)
                outcome.faults.append(f"input {number} did harm and is kept in {place}:\n{format_exc()}")
                break
        else:
            outcome.faults += [str(error) for error in (_ending(machine), _ending(live)) if error is not None]
        outcome.shots += live.shots
        outcome.reasons = machine.reasons + live.reasons
    return outcome


def _ending(target: MachineTarget | LiveTarget) -> FaultError | None:
    """What stayed behind when everybody had left."""
    try:
        target.finish()
    except FaultError as error:
        return error
    return None


def save(given: Input, why: str, corpus: Path) -> Path:
    """Keep an input that did harm."""
    place = corpus / f"{sha256(str(given).encode()).hexdigest()[:12]}.txt"
    corpus.mkdir(exist_ok=True)
    comment = "\n".join(f"# {line}" for line in why.splitlines()[:5])
    place.write_text(f"{given}{comment}\n")
    return place


@contextmanager
def _live() -> Iterator[LiveTarget]:
    with tempfile.TemporaryDirectory() as folder, live_broker(Path(folder), SETTINGS, log_level="info") as broker:
        yield LiveTarget(broker)


def main() -> int:
    """What ``make fuzz`` calls."""
    parser = argparse.ArgumentParser(description="Shoot bad bytes at a broker.")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    began = time.monotonic()
    outcome = run(arguments.inputs, arguments.seed)
    sys.stdout.write(f"{outcome}\n{time.monotonic() - began:.0f} s, seed {arguments.seed}\n")
    return 1 if outcome.faults or outcome.missing else 0


if __name__ == "__main__":
    sys.exit(main())
