"""The dialler: which broker to dial next, and when.

In:    lost links and failed dials; addresses that a leaving broker named; Connect commands.
Out:   dials, in the order of the targets, with growing pauses and jitter; outcomes of requests that wait for a broker;
       the end of the session if no broker accepts it.
State: the next target, or the last one again, the dial under way, the number of failures; requests that wait for a
       broker.
Not here: the handshake (client/handshake.py), moving while a link is still there (client/roaming.py).
"""

from __future__ import annotations

from random import Random

from heliograph.client.commands import Connect, EndSession, Request
from heliograph.client.config import NS_PER_MS, ClientConfig, Target, stays_here
from heliograph.client.line import Line
from heliograph.client.lines import Lines
from heliograph.client.requests import OpenRequests
from heliograph.errors import HeliographError, NotConnectedError, Reason
from heliograph.machine import Dial, Instant, LinkId, Outbox, Peer, Ticket, Timers
from heliograph.notes import DialFailed
from heliograph.wire.bodies import Welcome

STEADY_MS = 1_000  # a link that lasted this long was good: the pauses start short again
_EXPLAINED = {
    Reason.DIAL_FAILED: "no broker answers there",
    Reason.TLS_FAILED: "no TLS 1.3 there, or nothing to trust it by",
    Reason.CERTIFICATE_UNTRUSTED: "a certificate of one side is not trusted by the other",
    Reason.CERTIFICATE_EXPIRED: "a certificate is out of date",
    Reason.CERTIFICATE_MALFORMED: "its certificate is not one of `heliograph ca issue` for a broker",
    Reason.ROLE_MISSING: "its certificate does not have the role broker",
    Reason.CREDENTIAL_MISSING: "it asks for a certificate",
}
# Trying again would fail for the same reason.
FATAL = frozenset(
    {
        Reason.CREDENTIAL_MISSING,
        Reason.CREDENTIAL_WRONG,
        Reason.CERTIFICATE_EXPIRED,
        Reason.CERTIFICATE_UNTRUSTED,
        Reason.CERTIFICATE_MALFORMED,
        Reason.ROLE_MISSING,
        Reason.NETWORK_OTHER,
        Reason.TAKEN_OVER,
    }
)
DOUBLINGS_MAX = 20  # enough to reach any maximum, and keeps the numbers small


class Dialler:
    """Dials brokers until one accepts the session. Jitter keeps many clients from coming back at the same moment."""

    def __init__(
        self,
        config: ClientConfig,
        seed: int,
        outbox: Outbox,
        timers: Timers,
        requests: OpenRequests,
        lines: Lines,
        end_session: EndSession,
    ) -> None:
        self._config = config
        self._random = Random(seed)
        self._outbox = outbox
        self._timers = timers
        self._requests = requests
        self._lines = lines
        self._end_session = end_session
        self._waiting: dict[Request, Instant] = {}  # requests that wait for a broker, and until when at least
        self._was_welcomed = False
        self._own = config.targets  # given by the program, or found by the last search
        self._targets = config.targets
        self._next = 0
        self._again: Target | None = None  # to be dialled before the next one
        self._pauses = 0  # since a link last proved steady
        self._away_since: Instant | None = None
        self.ticket: Ticket | None = None  # the dial under way
        self._failures = 0  # since a broker welcomed us
        self._last_failure: tuple[Reason, str] = (Reason.DIAL_FAILED, "no broker was dialled yet")
        timers.set("dial", 0, self._dial)

    @property
    def target(self) -> Target:
        """The broker that is dialled, or was dialled last."""
        return self._again or self._targets[self._next % len(self._targets)]

    @property
    def _is_hinted(self) -> bool:
        """True if the present target was named by a broker, not by the program."""
        return self.target not in self._own

    @property
    def _tried_all(self) -> bool:
        """True if each target has failed since a broker welcomed us."""
        return self._failures >= len(self._targets)

    def hint(self, targets: list[Target]) -> None:
        """A leaving broker named others: try these as well as the program's own, until a broker names others."""
        own, present = self._own, self.target
        self._targets = (*own, *(target for target in targets if target not in own))
        self._next = self._targets.index(present) if present in self._targets else len(own) - 1

    def retarget(self, targets: tuple[Target, ...], now: Instant) -> None:
        """A search found these brokers: without a link, try them now, in this order."""
        self._own = self._targets = targets
        self._next = len(targets) - 1  # the one before the first
        if self._away_since is not None and self.ticket is None:
            self._next = self._pauses = 0
            self._timers.set("dial", now, self._dial)

    # -- requests that wait for a broker ------------------------------------------------------------------------

    def connect(self, command: Connect, now: Instant) -> None:
        """Wait for a broker."""
        if self._lines.is_ready:
            self._requests.accept(command.request, self._lines.welcome)
            return
        self._waiting[command.request] = at = now + command.ms_max * NS_PER_MS
        self._timers.set(("connect", command.request), at, self._review_waiting)

    def _review_waiting(self, now: Instant) -> None:
        """Fail requests that have waited long enough, once each target has been tried."""
        if not self._tried_all:
            return
        for request, until in list(self._waiting.items()):
            if until <= now:
                del self._waiting[request]
                self._timers.cancel(("connect", request))
                self._requests.refuse(request, self._error())

    # -- links --------------------------------------------------------------------------------------------------

    def attached(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The dial made a link: say hello, unless that would send our token over the network in clear text."""
        self.ticket = None
        self._timers.cancel("dial")
        if not self._config.token or self.target.secure or stays_here(peer.address):
            self._lines.open(link, self.target, now, hinted=self._is_hinted)
            return
        # "localhost" did not mean this machine.
        self._outbox.hang_up(link, Reason.CREDENTIAL_MISSING)
        text = f"the token would cross the network to {peer.address} in clear text"
        if self._is_hinted:
            self.failed(Reason.CREDENTIAL_MISSING, text, now)
        else:
            self._end_session(NotConnectedError(Reason.CREDENTIAL_MISSING, text), now)

    def found(self, target: Target) -> None:
        """A broker accepted us; it may be one to which the session has moved in the meantime."""
        if target in self._targets:
            self._next = self._targets.index(target)
        self._failures = 0
        self._again = None
        self._away_since = None
        self._timers.cancel("give up")

    def welcomed(self, target: Target, welcome: Welcome) -> None:
        """A broker has welcomed us, and its line is in use."""
        self._was_welcomed = True
        self.found(target)
        for request in self._waiting:
            self._timers.cancel(("connect", request))
            self._requests.accept(request, welcome)
        self._waiting.clear()

    def lost(self, line: Line, reason: Reason, now: Instant, *, again: bool = False) -> None:
        """The link is gone: dial again, another broker if there is one; with ``again`` the same broker first."""
        if line.welcomed_at is None:
            said, text = line.said if line.said is not None else (reason, "")
            self.failed(said, text, now)
            return
        if now - line.welcomed_at >= STEADY_MS * NS_PER_MS:
            self._pauses = 0
        self._pause(now, line.target if again else None)

    def failed(self, reason: Reason, text: str, now: Instant) -> None:
        """A dial or handshake failed. A bad certificate stays bad; anything else may get better."""
        hinted = self._is_hinted
        self._count_failure(reason, text, now)
        fatal = reason in FATAL or (reason is Reason.TLS_FAILED and not self._was_welcomed)
        if fatal and not hinted and self._tried_all:
            self._end_session(self._error(), now)
        self._review_waiting(now)

    def _count_failure(self, reason: Reason, detail: str, now: Instant) -> None:
        """Try the next target after a pause."""
        self._failures += 1
        self._last_failure = (reason, f"{self.target}: {detail or self._explain(reason)}")
        target = self.target
        self._outbox.note(DialFailed(str(target), reason, self._pause(now)))

    def _error(self) -> NotConnectedError:
        """The error that says why there is no broker."""
        return NotConnectedError(*self._last_failure)

    def end(self, error: HeliographError) -> None:
        """The session has ended: stop dialling; requests that wait for a broker fail."""
        self._stop()
        for request in self._waiting:
            self._requests.refuse(request, error)
        self._waiting.clear()

    # -- dialling -----------------------------------------------------------------------------------------------

    def _stop(self) -> None:
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
        """The dial took too long: if it still makes a link, that link is not used."""
        self.ticket = None
        self._count_failure(Reason.TIME_OUT, f"no link within {self._config.dial_ms_max} ms", now)

    def _pause(self, now: Instant, again: Target | None = None) -> int:
        """Wait before the next dial; returns for how many milliseconds. ``again``: dial this one before the next."""
        config = self._config
        self.ticket = None
        self._start_patience(now)
        rounds = min(self._pauses // len(self._targets), DOUBLINGS_MAX)
        self._again = again
        if again is None:
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
        self._stop()
        self._end_session(self._error(), now)
