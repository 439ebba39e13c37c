"""Advertising: tells other brokers what this broker's clients want.

In:    our clients' subscriptions as they come and go.
Out:   Interest bodies to the neighbours in our cluster and, while this broker leads its part of it, to the network.
State: our own advertised interests. Those of our part of the cluster are in leadership.py.
Not here: what others want (interests.py), what is told for the cluster (leadership.py).
"""

from __future__ import annotations

from heliograph.broker.routing.interests import AdvertisedInterests, Difference
from heliograph.broker.routing.leadership import Leadership, inbox_of
from heliograph.broker.routing.teller import Teller
from heliograph.broker.routing.view import View
from heliograph.machine import Instant, Timers
from heliograph.model.subscription import Subscription


class Advertising:
    """Advertises what our clients want, and what our part of the cluster wants."""

    def __init__(self, view: View, teller: Teller, interests_max: int, timers: Timers) -> None:
        self._view = view
        self._teller = teller
        self._timers = timers
        self.inbox = inbox_of(view.me)
        self.own = AdvertisedInterests(view.me, False, view.map.me.incarnation, interests_max)
        self.own.change([self.inbox + b"/#"])  # one interest for the inboxes of all our sessions
        self.leadership = Leadership(view, teller, self.own, interests_max, self._look_whether_settled)

    def local_change(self, came: list[Subscription], went: list[Subscription]) -> None:
        """Our own clients' subscriptions changed."""
        change = self.own.change(
            [one.wanted for one in came if not (one.group or one.listens)],
            [one.wanted for one in went if not (one.group or one.listens)],
            [(one.wanted, one.group) for one in came if one.group],
            [(one.wanted, one.group) for one in went if one.group],
            [one.wanted for one in came if one.listens],
            [one.wanted for one in went if one.listens],
        )
        self._tell_change(change)

    def renew(self, incarnation: int) -> None:
        """We have a newer incarnation: advertise everything again under it."""
        self.own.renew(incarnation)
        self._teller.tell_interests(self.own.snapshot())
        self.leadership.outlive(incarnation)

    def _tell_change(self, change: Difference | None) -> None:
        if change is not None:
            self._teller.tell_interests(self.own.bodies(change))
            self.leadership.hear(self._view.me, change)
        self._look_whether_settled()

    def _look_whether_settled(self) -> None:
        """If our own interests or those of our part are not fully advertised yet, continue at the next wake."""
        if not (self.own.is_settled and self.leadership.is_settled):
            self._timers.set("interests", 0, self._tell_more)

    def _tell_more(self, now: Instant) -> None:
        if self.own.is_settled:
            self.leadership.tell_more()
        else:
            self._tell_change(self.own.change())
