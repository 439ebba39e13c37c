"""Roaming: a planned move from a broker that drains, or to a better one, with nothing lost, repeated or out of order.

In:    other brokers, named by the draining broker or found by a search; the second link as it comes up and ends.
Out:   a dial; subscriptions on a second line; in the end that line is the one in use.
State: candidates for the move, and its progress. The rising line is in client/lines.py.
Not here: finding a broker after a link was lost (client/dialler.py), what happens when a line comes into use
          (client/resumption.py), frames (client/conversation.py).
Paper: [grid] §1.1, roaming clients (N8).

A move goes from mark to mark. A mark is a subscription that is confirmed when every broker in reach knows it, and that
follows, on each link between brokers, everything that was sent there before.

1. Looking. When the next broker has welcomed us, the present one is asked for a mark, so that every broker knows the
   newest subscription made there. Then the next broker is asked for all subscriptions and a mark. Nothing else changes
   yet: the present line is used as before, except that new subscriptions wait, and deliveries of the next broker are
   kept back.
2. Moving. Every broker now sends us what we want over both lines. New publications wait. The present broker is asked to
   take us out of groups (which choose one of their members), to confirm what we published, and for a mark. After that
   mark, nothing is under way to us that the next broker does not deliver too, and nothing of ours is under way that our
   publications at the next broker could overtake. Then the next line comes into use; what was delivered on both is
   recognised by its id and dropped. The old line stays while answers are due on it.

This is exact if there is only one path between any two brokers. In a network with loops a mark takes the fastest path,
and a publication the shortest: a publication that takes more than two hops, all of them slower than another path, could
still be overtaken, or missed.

If the next broker fails, the one named after it is tried; if none is left, the session leaves and reconnects as after
any other goodbye. If the present broker ends early, the next one is used at once.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from ipaddress import ip_address

from heliograph.client.config import NS_PER_MS, ClientConfig, Target, parse_target, stays_here
from heliograph.client.dialler import Dialler
from heliograph.client.graceful_leave import GracefulLeave
from heliograph.client.line import Line
from heliograph.client.lines import Lines
from heliograph.client.resumption import Resumption
from heliograph.client.subscription_requests import SubscriptionRequests
from heliograph.client.subscriptions import NUMBER_MAX
from heliograph.errors import Reason, RefusedError, UsageError
from heliograph.machine import Dial, Instant, LinkId, Outbox, Peer, Ticket, Timers
from heliograph.model.hosts import is_loopback
from heliograph.notes import DialFailed, SessionRoamed
from heliograph.wire.bodies import Goodbye

OTHERS_MAX = 8  # addresses of one goodbye that are considered
ADVICE_PAUSE_NS = 60_000 * NS_PER_MS  # after a move; advice to move that comes sooner is ignored
MOVE_MS_MAX = 20_000  # for a move to a better broker; the present one is not in a hurry


class MoveStep(Enum):
    """The steps of a move."""

    STAYING = 1
    LOOKING = 2
    MOVING = 3


class Roaming:
    """Moves a session from one broker to another."""

    def __init__(
        self,
        config: ClientConfig,
        outbox: Outbox,
        timers: Timers,
        lines: Lines,
        dialler: Dialler,
        subscription_requests: SubscriptionRequests,
        resumption: Resumption,
        leave: GracefulLeave,
    ) -> None:
        self._config = config
        self._outbox = outbox
        self._timers = timers
        self._lines = lines
        self._dialler = dialler
        self._subscription_requests = subscription_requests
        self._resumption = resumption
        self._leave = leave
        self.count = 0  # moves so far
        self.ticket: Ticket | None = None  # the dial under way
        self._allowed = True
        self._step = MoveStep.STAYING
        self._candidates: deque[Target] = deque()
        self._target: Target | None = None
        self._ends_at: Instant = 0  # when the present broker will be gone
        self._may_stay = False  # the present broker would keep us: the program asked for the move …
        self._advised = False  # … or the present broker asked for it, because it is overloaded
        self._moved_at: Instant | None = None
        self._mark = NUMBER_MAX  # the number of the next mark; they count down, far from the program's own
        self._awaited = 0  # the answer that ends this step

    @property
    def is_active(self) -> bool:
        """True between the present broker's goodbye and the end of the move."""
        return self._step is not MoveStep.STAYING

    def forbid(self) -> None:
        """Begin no further move, as the session is about to end."""
        self._allowed = False

    # -- looking ------------------------------------------------------------------------------------------------

    def begin(self, line: Line, body: Goodbye, now: Instant) -> None:
        """The present broker is leaving: move to another one if it names a suitable one, else leave in time."""
        ends_at = now + body.grace_ms * NS_PER_MS
        if self.is_active:
            self._may_stay = self._advised = False
            self._ends_at = min(self._ends_at, ends_at)
            return
        candidates = successors(line.target, body.others, bool(self._config.token))
        self._dialler.hint(candidates)
        if candidates and self._allowed:
            self._look(candidates, ends_at, now)
        else:
            self._leave.leave_soon(line, ends_at, now)

    def advised(self, line: Line, body: Goodbye, now: Instant) -> None:
        """The broker is overloaded and names others. A session that has moved recently stays."""
        if self._moved_at is not None and now - self._moved_at < ADVICE_PAUSE_NS:
            return
        candidates = successors(line.target, body.others, bool(self._config.token))
        if not self.is_active:
            self._advised = True
            self.move([target for target in candidates if target != line.target], now)
            self._advised = self.is_active

    def move(self, candidates: list[Target], now: Instant) -> None:
        """Move to a better broker although the present one would keep us; if that fails, stay."""
        if candidates and self._allowed and not self.is_active:
            self._may_stay = True
            self._look(candidates, now + MOVE_MS_MAX * NS_PER_MS, now)

    def _look(self, candidates: list[Target], ends_at: Instant, now: Instant) -> None:
        self._step = MoveStep.LOOKING
        self._candidates = deque(candidates)
        self._ends_at = ends_at
        self._timers.set("roam", (now + ends_at) // 2, self._too_late)
        self._try_next(now)

    def _try_next(self, now: Instant) -> None:
        if not self._candidates:
            self._give_up(now)
            return
        self._target = target = self._candidates.popleft()
        dial = Dial(target.host, target.port, target.secure, target.server_name)
        self.ticket = self._outbox.dial(dial)
        at = now + self._config.dial_ms_max * NS_PER_MS
        self._timers.set("roam dial", at, lambda now: self.failed(Reason.TIME_OUT, now))

    def failed(self, reason: Reason, now: Instant) -> None:
        """The dial did not succeed."""
        self._forget_candidate(reason)
        self._try_next(now)

    def attached(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The dial made a link."""
        assert self._target is not None
        self._timers.cancel("roam dial")
        self.ticket = None
        if self._config.token and not self._target.secure and not stays_here(peer.address):
            self._outbox.hang_up(link, Reason.CREDENTIAL_MISSING)  # the network would see the token
            self.failed(Reason.CREDENTIAL_MISSING, now)
            return
        self._lines.open(link, self._target, now, rising=True, advised=self._advised)

    def welcomed(self, line: Line, now: Instant) -> None:
        """The next broker accepts us. Without subscriptions, there is nothing that every broker must know first."""
        present = self._lines.current
        if not line.inbox or present is None or not present.inbox:
            self._lines.hang_up(line, Reason.GOODBYE, "there are no inboxes")
        elif self._subscription_requests.has_any:
            self._set_mark(present)
        else:
            self._move(now)

    def refused(self, line: Line, error: RefusedError, now: Instant) -> None:
        """The next broker refuses a subscription that the present one allows, so it is not suitable."""
        self._lines.hang_up(line, Reason.GOODBYE, f"you refuse {error.reason.word}")

    # -- moving -------------------------------------------------------------------------------------------------

    def passed(self, line: Line, answer: int, now: Instant) -> None:
        """A mark was answered."""
        rising = self._lines.rising
        if answer != self._awaited or rising is None:
            return
        self._awaited = 0
        if self._step is MoveStep.MOVING:
            self._complete(now)
            return
        self._subscription_requests.part(line, self._mark)
        if line is rising:
            self._move(now)
        else:
            self._subscription_requests.ask_for_all(rising, now, self._asked_all)

    def _asked_all(self, line: Line, now: Instant) -> None:
        """The next broker was asked for everything that the present one has."""
        if line is self._lines.rising:
            self._set_mark(line)

    def _set_mark(self, line: Line) -> None:
        self._mark -= 1
        self._awaited = self._subscription_requests.mark(line, self._mark)

    def _move(self, now: Instant) -> None:
        """Every broker knows that we are at the next one as well."""
        lines, present, following = self._lines, self._lines.current, self._lines.rising
        if present is None or not present.is_ready or following is None:
            return  # the line was just lost; ``take_over`` follows
        self._step = MoveStep.MOVING
        lines.hold(following, True, now)
        lines.pump(present)
        lines.begin_move(present)
        self._subscription_requests.part_groups(present)
        lines.ping(present)
        self._set_mark(present)
        self._timers.set("roam", self._last_moment(now), self._too_late)

    def _complete(self, now: Instant) -> None:
        present, following = self._lines.current, self._lines.rising
        assert present is not None
        assert following is not None
        at = self._last_moment(now)
        self._stay()
        self.count += 1
        self._moved_at = now
        self._outbox.note(SessionRoamed(str(present.target), str(following.target)))
        self._resumption.switch(following, now, planned=True)
        self._leave.leave_at(present, at)

    # -- when it fails ------------------------------------------------------------------------------------------

    def lost(self, line: Line, reason: Reason, now: Instant) -> None:
        """A line beside the one in use is gone."""
        if line is not self._lines.rising:
            return
        self._lines.drop_rising()
        self._forget_candidate(line.said[0] if line.said is not None else reason)
        if self._step is MoveStep.MOVING:
            self._go_back(now)
        self._try_next(now)

    def take_over(self, now: Instant) -> bool:
        """The present line was lost during the move. True if the next one could take its place."""
        following = self._lines.rising
        if not self.is_active:
            return False
        if following is None or not following.is_ready:
            self.stop()
            return False
        self._stay()
        self._resumption.switch(following, now, planned=False)
        return True

    def stop(self) -> None:
        """Stay where we are."""
        line = self._lines.rising
        self._stay()
        if line is not None:
            self._lines.hang_up(line, Reason.GOODBYE)

    def _too_late(self, now: Instant) -> None:
        rising = self._lines.rising
        if self._step is MoveStep.MOVING and rising is not None and rising.is_ready:
            self._complete(now)
            return
        if self._step is MoveStep.MOVING:
            self._go_back(now)
        self._give_up(now)

    def _give_up(self, now: Instant) -> None:
        """No candidate is suitable: leave as if none had been named, or stay if we may."""
        present, ends_at, may_stay = self._lines.current, self._ends_at, self._may_stay
        self.stop()
        if present is not None and present.is_ready:
            self._subscription_requests.ask_for_all(present, now)  # the subscriptions that waited for the move
            if not may_stay:
                self._leave.leave_soon(present, max(now, ends_at), now)

    def _go_back(self, now: Instant) -> None:
        """The next broker was lost after we began to move: restore everything at the present one."""
        self._step = MoveStep.LOOKING
        present = self._lines.current
        if present is not None and present.is_ready:
            present.stay()
            self._subscription_requests.ask_for_all(present, now)

    def _forget_candidate(self, reason: Reason) -> None:
        self._timers.cancel("roam dial")
        self._outbox.note(DialFailed(str(self._target), reason, 0))
        self.ticket = None
        self._awaited = 0

    def _stay(self) -> None:
        """The move is over, successful or not."""
        for key in ("roam", "roam dial"):
            self._timers.cancel(key)
        self._lines.drop_rising()
        self._step, self.ticket, self._awaited = MoveStep.STAYING, None, 0
        self._candidates.clear()
        self._may_stay = self._advised = False

    def _last_moment(self, now: Instant) -> Instant:
        """When to leave the present broker at the latest: before it ends the link itself."""
        return now + 3 * max(0, self._ends_at - now) // 4


def successors(present: Target, addresses: list[str], has_token: bool) -> list[Target]:
    """The addresses that are no less secure than the present one, in the same order.

    A broker must not make us give up TLS or leave this machine, nor direct us to our own machine from elsewhere. The
    name that the program expects in certificates stays the same.
    """
    found: dict[Target, None] = {}
    for address in addresses[:OTHERS_MAX]:
        try:
            target = parse_target(address, present.server_name)
        except UsageError:
            continue
        here = is_loopback(target.host)
        if here and not is_loopback(present.host):
            continue
        if not target.secure and (present.secure or ((is_loopback(present.host) or has_token) and not here)):
            continue
        if target != present and not _is_anywhere(target.host):
            found[target] = None
    return list(found)


def _is_anywhere(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
