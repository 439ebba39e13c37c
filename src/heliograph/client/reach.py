"""Reach: which broker to dial next, and when.

In:    lost links and failed dials; addresses that a broker named when it had to go.
Out:   dials, in the order of the targets, with growing pauses and jitter.
State: the next target, the dial under way, how often it failed.
Not here: the handshake (client/conversation.py), moving while a link is still there (client/roaming.py).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from heliograph.client.config import ClientConfig, Target
from heliograph.errors import NotConnectedError, Reason
from heliograph.machine import Dial, Instant, Outbox, Ticket, Timers
from heliograph.notes import DialFailed

NS_PER_MS = 1_000_000
STEADY_MS = 1_000  # a link that lasted so long was a good one: the next pause is a short one again
_EXPLAINED = {
    Reason.DIAL_FAILED: "no broker answers there",
    Reason.TLS_FAILED: "no TLS 1.3 there, or nothing to trust it by",
    Reason.CERTIFICATE_UNTRUSTED: "a certificate of one side is not trusted by the other",
    Reason.CERTIFICATE_EXPIRED: "a certificate is out of date",
    Reason.CREDENTIAL_MISSING: "it asks for a certificate",
}
DOUBLINGS_MAX = 20  # enough to reach any maximum, and keeps the numbers small


class Reach:
    """Finds a broker again and again. The jitter keeps a thousand clients from coming back at the same moment."""

    def __init__(
        self,
        config: ClientConfig,
        seed: int,
        outbox: Outbox,
        timers: Timers,
        gave_up: Callable[[NotConnectedError, Instant], None],
    ) -> None:
        self._config = config
        self._random = Random(seed)
        self._outbox = outbox
        self._timers = timers
        self._gave_up = gave_up
        self._targets = config.targets
        self._next = 0
        self._pauses = 0  # since a link lasted
        self._away_since: Instant | None = None
        self.ticket: Ticket | None = None  # the dial under way
        self.failures = 0  # since a broker welcomed us
        self.last_failure: tuple[Reason, str] = (Reason.DIAL_FAILED, "nobody was asked yet")
        timers.set("dial", 0, self._dial)

    @property
    def target(self) -> Target:
        """The broker that is dialled, or was dialled last."""
        return self._targets[self._next % len(self._targets)]

    @property
    def is_hinted(self) -> bool:
        """True if the present target was named by a broker, not by the program."""
        return self.target not in self._config.targets

    @property
    def tried_all(self) -> bool:
        """True if each target has failed since a broker welcomed us."""
        return self.failures >= len(self._targets)

    def hint(self, targets: list[Target]) -> None:
        """A broker that has to go named others: they are tried besides the program's own, until the next such word."""
        own, present = self._config.targets, self.target
        self._targets = (*own, *(target for target in targets if target not in own))
        self._next = self._targets.index(present) if present in self._targets else len(own) - 1

    def attached(self) -> None:
        """The dial made a link."""
        self.ticket = None
        self._timers.cancel("dial")

    def welcomed(self, target: Target) -> None:
        """There is a broker; perhaps one to which the session has moved meanwhile."""
        if target in self._targets:
            self._next = self._targets.index(target)
        self.failures = 0
        self._away_since = None
        self._timers.cancel("give up")

    def left(self, lasted_ns: int, now: Instant) -> None:
        """A link that was in use is gone: dial again, elsewhere if there is an elsewhere."""
        if lasted_ns >= STEADY_MS * NS_PER_MS:
            self._pauses = 0
        self._pause(now)

    def failed(self, reason: Reason, detail: str, now: Instant) -> None:
        """A dial or handshake did not succeed: try the next target after a pause."""
        self.failures += 1
        self.last_failure = (reason, f"{self.target}: {detail or self._explain(reason)}")
        target = self.target
        self._outbox.note(DialFailed(str(target), reason, self._pause(now)))

    def error(self) -> NotConnectedError:
        """Why there is no broker, for people."""
        return NotConnectedError(*self.last_failure)

    def stop(self) -> None:
        """Dial no more."""
        self.ticket = None
        self._timers.cancel("dial")
        self._timers.cancel("give up")

    def _dial(self, now: Instant) -> None:
        config = self._config
        target = self.target
        self._start_patience(now)
        self.ticket = self._outbox.dial(Dial(target.host, target.port, target.secure, target.server_name))
        self._timers.set("dial", now + config.dial_ms_max * NS_PER_MS, self._late)

    def _late(self, now: Instant) -> None:
        """Should this dial still make a link, it is not wanted any more."""
        self.ticket = None
        self.failed(Reason.TIME_OUT, f"no link within {self._config.dial_ms_max} ms", now)

    def _pause(self, now: Instant) -> int:
        """Wait before the next dial; returns for how many milliseconds."""
        config = self._config
        self.ticket = None
        self._start_patience(now)
        rounds = min(self._pauses // len(self._targets), DOUBLINGS_MAX)
        self._next = (self._next + 1) % len(self._targets)
        self._pauses += 1
        longest = min(config.retry_ms << rounds, config.retry_ms_max)
        pause_ms = max(1, int(longest * self._random.uniform(0.5, 1.0)))
        self._timers.set("dial", now + pause_ms * NS_PER_MS, self._dial)
        return pause_ms

    @staticmethod
    def _explain(reason: Reason) -> str:
        return _EXPLAINED.get(reason, "the link ended before a WELCOME")

    def _start_patience(self, now: Instant) -> None:
        if self._away_since is None:
            self._away_since = now
            if self._config.give_up_ms is not None:
                self._timers.set("give up", now + self._config.give_up_ms * NS_PER_MS, self._give_up)

    def _give_up(self, now: Instant) -> None:
        self.stop()
        self._gave_up(self.error(), now)
