"""Incarnation: tracks our incarnation and handles conflicting records under our name.

In:    records and interests about ourselves that other brokers pass on.
Out:   a higher incarnation, with everything about ourselves told again; a correction of an outdated record.
State: none.
Not here: which incarnations are believed, and how often ours is raised (timekeeping/incarnations.py); which record is
          valid (map.py, interests.py); two linked brokers with the same name (peering.py).
Paper: N4, N18.

Brokers that know a newer record under our name than our own would ignore what we tell them. That record may be from an
earlier incarnation, if the clock was set back since; from another broker with our name; or forged. So we raise our
incarnation above it, but not too often, because two brokers with the same name outbid each other while both run.
"""

from __future__ import annotations

from msgspec.structs import replace

from heliograph.broker.routing.advertising import Advertising
from heliograph.broker.routing.announcements import Announcements
from heliograph.broker.routing.exchange import Exchange
from heliograph.broker.routing.ports import Port
from heliograph.broker.routing.teller import Teller
from heliograph.broker.routing.view import View
from heliograph.errors import Reason
from heliograph.machine import Instant, Timers
from heliograph.notes import NameContested
from heliograph.timekeeping.incarnations import Outbidding
from heliograph.wire.broker_bodies import Gateway, Interest, Record


class Incarnation:
    """Keeps our own records the newest about ourselves."""

    def __init__(
        self,
        view: View,
        advertising: Advertising,
        announcements: Announcements,
        exchange: Exchange,
        teller: Teller,
        timers: Timers,
    ) -> None:
        self._view = view
        self._advertising = advertising
        self._announcements = announcements
        self._exchange = exchange
        self._teller = teller
        self._outbidding = Outbidding(timers, self._renew)

    def hear_record(self, record: Record, link: Port, now: Instant) -> None:
        """A neighbour has passed on a record under our name."""
        me = self._view.map.me
        if not isinstance(record, Gateway):
            self._outbidding.hear(record.age, me.age, now)
            return
        self._outbidding.hear(record.age, (me.incarnation, self._advertising.leadership.gateway_number), now)
        self._correct(record, link, now)

    def hear_interest(self, interest: Interest, now: Instant) -> None:
        """A neighbour has passed on our own interests, or those that we told as leader."""
        advertising = self._advertising
        incarnation = self._view.map.me.incarnation
        ours = (incarnation, advertising.leadership.number) if interest.wide else advertising.own.age
        self._outbidding.hear(interest.age, ours, now)

    def _renew(self, newest: int, is_contested: bool, now: Instant) -> None:
        known = self._view.map
        if is_contested:
            self._teller.refuse(Reason.NAME_TAKEN)
            self._teller.note(NameContested(known.me.name))
        incarnation = max(newest, known.me.incarnation) + 1
        known.learn(replace(known.me, incarnation=incarnation, number=1))
        self._advertising.renew(incarnation)
        self._announcements.announce(now, anew=True)
        if self._view.me in known.gateways:
            self._advertising.leadership.announce_gateway(now, renew=True)

    def _correct(self, record: Gateway, link: Port, now: Instant) -> None:
        """The neighbour believes that we are still a gateway. Items out of reach are not offered, so tell it."""
        known = self._view.map.gateways.get(self._view.me)
        if known is None:
            self._advertising.leadership.announce_gateway(now, renew=True)
        elif record.age < known.age and not known.outside and link.neighbour is not None:
            self._exchange.send(link.neighbour, "gateway", self._view.me)
