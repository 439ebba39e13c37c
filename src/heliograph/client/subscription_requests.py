"""Subscription requests: what a session asks brokers about its subscriptions, and their answers.

In:    subscriptions that the program makes and ends; lines that come into use; CONFIRMED and REFUSED.
Out:   SUBSCRIBE and UNSUBSCRIBE frames; settled requests; a note when everything is in force again after a reconnect.
State: how many publications the last reconnect repeated. What a broker was asked for is in its line (client/line.py).
Not here: the subscriptions themselves (client/subscriptions.py), which answer belongs to which request
          (client/requests.py), moving between brokers (client/roaming.py).
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.client import commands
from heliograph.client.commands import Request
from heliograph.client.line import Line
from heliograph.client.lines import Lines
from heliograph.client.requests import Expected, OpenRequests
from heliograph.client.subscriptions import LocalSubscription, LocalSubscriptions
from heliograph.errors import Reason, RefusedError, UsageError
from heliograph.machine import Instant, Outbox, Timers
from heliograph.notes import SessionRestored
from heliograph.wire import bodies
from heliograph.wire.frames import Kind, control

ASKED_AT_ONCE = 1_000  # subscriptions per input: a hundred thousand would stall the program's loop

Asked = Callable[[Line, Instant], None]


class SubscriptionRequests:
    """Asks brokers for the subscriptions of one session."""

    def __init__(
        self,
        subscriptions: LocalSubscriptions,
        requests: OpenRequests,
        lines: Lines,
        outbox: Outbox,
        timers: Timers,
    ) -> None:
        self._subscriptions = subscriptions
        self._requests = requests
        self._lines = lines
        self._outbox = outbox
        self._timers = timers
        self._repeated = 0

    @property
    def has_any(self) -> bool:
        """True if there is a subscription to ask a broker for."""
        return bool(self._subscriptions.everything())

    # -- commands -----------------------------------------------------------------------------------------------

    def subscribe(self, command: commands.Subscribe, now: Instant) -> None:
        """Subscribe; without a link, or during a move, the request waits for the next line."""
        subscription = self._subscriptions.add(command)
        try:
            self._requests.open(command.request, now, lambda now: self._end(subscription, 0))
        except UsageError:
            self._subscriptions.remove(subscription)
            raise
        line = self._lines.current
        if line is not None and line.is_ready and not self._lines.settles:
            self.ask_for(line, subscription, now)

    def unsubscribe(self, command: commands.Unsubscribe, now: Instant) -> None:
        """End a subscription of the program."""
        subscription = self._subscriptions.get(command.number)
        if subscription is None:
            error = RefusedError(Reason.SUBSCRIPTION_UNKNOWN, f"there is no subscription {command.number}")
            self._requests.refuse(command.request, error)
            return
        if command.request:
            self._requests.open(command.request, now)
        self._end(subscription, command.request)

    def unsubscribe_all(self) -> None:
        """End every subscription of the program."""
        for subscription in self._subscriptions:
            self._end(subscription, 0)

    def _end(self, subscription: LocalSubscription, request: Request) -> None:
        """End a subscription at the present broker and at the one to which we are moving."""
        self._subscriptions.abandon(subscription)
        number, line = subscription.number, self._lines.current
        self._part_at_rising(number)
        if line is None or not line.is_ready or number not in line.asked:
            self._subscriptions.remove(subscription)
            self._requests.settle(request)
            return
        subscription.end()
        answer = self._requests.expect(line.id, Expected("unsubscribe", request, number))
        self._lines.request(line, control(Kind.UNSUBSCRIBE, answer, bodies.encode(bodies.Unsubscribe(number))))

    # -- asking -------------------------------------------------------------------------------------------------

    def ask_for(self, line: Line, subscription: LocalSubscription, now: Instant) -> None:
        """Ask for a new subscription, after what was published before."""
        self._lines.pump(line)
        line.unasked.append(subscription)
        self._ask_on(line, None, now)

    def ask_for_all(self, line: Line, now: Instant, asked: Asked | None = None) -> None:
        """Ask for every subscription that this broker has not been asked for; then call ``asked``."""
        everything = self._subscriptions.everything()
        line.unasked.extend(subscription for subscription in everything if subscription.number not in line.asked)
        self._ask_on(line, asked, now)

    def _ask_on(self, line: Line, asked: Asked | None, now: Instant) -> None:
        if not line.is_ready:
            return
        for _ in range(min(ASKED_AT_ONCE, len(line.unasked))):
            subscription = line.unasked.popleft()
            number = subscription.number
            if number in line.asked:
                continue
            if subscription.ending or self._subscriptions.get(number) is not subscription:
                self._restored(line, number)
                continue
            answer = self._requests.expect(line.id, Expected("subscribe", 0, number))
            line.out.append(control(Kind.SUBSCRIBE, answer, subscription.body(line.inbox)))
            line.asked.add(number)
        if line.unasked:
            self._timers.set(("ask on", line.id), now, lambda now: self._ask_on(line, asked, now))
        elif asked is not None:
            asked(line, now)

    def revoked(self, line: Line, filter: str, error: RefusedError) -> None:
        """The broker ended our subscriptions to this filter: a grant was revoked or has expired."""
        for subscription in list(self._subscriptions):
            if subscription.filter == filter and subscription.number in line.asked:
                self.refused(line, subscription.number, error)

    def part(self, line: Line, number: int) -> None:
        """End a subscription at this broker only; for the program it continues."""
        line.part(number)
        answer = self._requests.expect(line.id, Expected("part", 0, number))
        line.out.append(control(Kind.UNSUBSCRIBE, answer, bodies.encode(bodies.Unsubscribe(number))))

    def part_groups(self, line: Line) -> None:
        """Leave all groups at this broker: a group chooses one of its members for each publication."""
        for subscription in self._subscriptions:
            if subscription.group and subscription.number in line.asked and not subscription.ending:
                self.part(line, subscription.number)

    def _part_at_rising(self, number: int) -> None:
        rising = self._lines.rising
        if rising is not None and number in rising.asked:
            self.part(rising, number)

    def mark(self, line: Line, number: int) -> int:
        """Ask for a mark: a subscription made for its answer, which comes when every broker knows all earlier ones.

        It follows everything that was under way to us here, or from us, when the broker received it. Returns the number
        of the answer.
        """
        body = bodies.Subscribe(number=number, filter=f"{line.inbox}/mark", wide=True)
        answer = self._requests.expect(line.id, Expected("mark", 0, number))
        line.out.append(control(Kind.SUBSCRIBE, answer, bodies.encode(body)))
        return answer

    def forget(self, line: Line) -> None:
        """The link is gone: ask for nothing more on it."""
        self._timers.cancel(("ask on", line.id))

    # -- answers ------------------------------------------------------------------------------------------------

    def confirmed(self, line: Line, number: int) -> None:
        """The broker has put a subscription in force."""
        line.in_force.add(number)
        self._restored(line, number)
        if not line.rising:
            self._settle(number)

    def settle_all(self, line: Line) -> None:
        """The line is in use: what is in force on it is in force for the program."""
        for number in sorted(line.in_force):
            self._settle(number)

    def _settle(self, number: int) -> None:
        subscription = self._subscriptions.get(number)
        if subscription is not None and subscription.request:
            self._requests.settle(subscription.take_request(), number)

    def refused(self, line: Line, number: int, error: RefusedError) -> None:
        """A broker refuses a subscription; this counts only at the present broker."""
        if line is not self._lines.current:
            return
        line.asked.discard(number)
        self._restored(line, number)
        subscription = self._subscriptions.get(number)
        if subscription is None:
            return
        self._part_at_rising(number)
        self._subscriptions.remove(subscription, error)
        self._requests.settle(subscription.request, error=error)

    def ended(self, expected: Expected) -> None:
        """The broker has ended a subscription, or the link is gone and the subscription with it."""
        subscription = self._subscriptions.get(expected.number)
        if subscription is not None and subscription.ending:
            self._subscriptions.remove(subscription)
        self._requests.settle(expected.request)

    # -- restoring a session --------------------------------------------------------------------------------------

    def begin_restoring(self, line: Line) -> None:
        """This line replaces a lost one: note when all subscriptions are in force on it."""
        everything = self._subscriptions.everything()
        line.restore({subscription.number for subscription in everything} - line.in_force)

    def restore(self, line: Line, repeated: int, now: Instant, *, planned: bool) -> None:
        """The line is now in use: ask its broker for everything. A planned move loses nothing, so nothing is noted."""
        self._repeated = repeated
        if not planned:
            self._note_restored(line)
        self.ask_for_all(line, now)

    def _restored(self, line: Line, number: int) -> None:
        """This subscription is in force again, or never will be."""
        if line.restored(number):
            self._note_restored(line)

    def _note_restored(self, line: Line) -> None:
        if not line.restoring and self._lines.used > 1 and line is self._lines.current:
            self._outbox.note(SessionRestored(str(line.target), len(self._subscriptions), self._repeated))
