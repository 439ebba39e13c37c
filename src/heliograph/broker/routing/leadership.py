"""Leadership: which member leads our part of the cluster, and what it tells other clusters.

In:    changes of the map, of our own interests and of those of other members.
Out:   the part's interests to all brokers, while this broker leads; its Gateway record, if it has links outside.
State: the leader, as far as is known; the part's advertised interests and the members included in them; our numbers.
Not here: what one broker advertises for itself (advertising.py), covering (interests.py), shortest paths (map.py).
Paper: [grid] §1.1 and §1.2; docs/decisions/0006.

The member with the lowest slot is to lead, once there is a gateway through which other clusters can be told. It begins
when it knows the interests of all other members. Until its interests are known and include every member, gateways name
the previous leader, which continues as long as one gateway names it. So other clusters never learn of a leader before
they have its interests.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.broker.routing.interests import AdvertisedInterests, Difference, Owner, snapshot_of
from heliograph.broker.routing.pace import Pace
from heliograph.broker.routing.teller import Teller
from heliograph.broker.routing.view import View
from heliograph.machine import Instant
from heliograph.model.topics import INBOX_ROOT
from heliograph.wire.broker_bodies import Gateway

COARSE = 8  # a cost between gateways that changed by less than an eighth is not told


def inbox_of(broker: int) -> bytes:
    """The topic that contains the inboxes of all sessions of a broker. The broker is always interested in it."""
    return b"%b/%016x" % (INBOX_ROOT, broker)


class Leadership:
    """Leads our part of the cluster if this broker is to, and knows the leader otherwise."""

    def __init__(
        self,
        view: View,
        teller: Teller,
        own: AdvertisedInterests,
        interests_max: int,
        look_whether_settled: Callable[[], None],
    ) -> None:
        self._view = view
        self._teller = teller
        self._own = own  # our own interests
        self._interests_max = interests_max
        self._look_whether_settled = look_whether_settled  # if there is more to tell, ``tell_more`` is called
        self.leader = view.me  # a broker alone leads itself
        self.advertised: AdvertisedInterests | None = None  # our part's interests, while we lead
        self._number = 0  # of the last change that we told for our part
        self._included: dict[int, None] = {}  # members whose interests are in ``advertised``
        self.gateway_number = 0  # of our last Gateway record
        self._pace = Pace()

    @property
    def number(self) -> int:
        """The number of the last change that we told for our part."""
        return self._number if self.advertised is None else self.advertised.age[1]

    def settle(self) -> None:
        """The map changed, or new interests are known: begin to lead, continue, or hand over."""
        self.leader = self._who()
        if self.advertised is not None:
            self._go_on()
        elif self.leader == self._view.me and self._view.gateways_here() and self._is_ready(self.leader):
            self._begin()

    def _who(self) -> int:
        """The leader: the member with the lowest slot, or the previous leader until that member's interests include
        all members."""
        view = self._view
        paths, before = view.paths, self.leader
        if paths.leader == before or self._is_ready(paths.leader):
            return paths.leader
        return before if before in view.map.members else paths.leader  # one that left is named until then

    def _is_ready(self, broker: int) -> bool:
        view = self._view
        cluster, interests = view.paths.cluster, view.interests
        if not view.gateways_here():
            return True  # no broker outside can be told anything
        if broker == view.me:
            return self.advertised is not None or all(interests.age(other, False) for other in self._others())
        age = interests.age(broker, True)
        if age is None or age[0] != cluster[broker].incarnation:
            return False  # nothing is known from its present incarnation
        return all(interests.includes(broker, inbox_of(member) + b"/0") for member in cluster)

    def _others(self) -> dict[int, None]:
        return {broker: None for broker in self._view.paths.cluster if broker != self._view.me}

    def _begin(self) -> None:
        view = self._view
        me, incarnation = view.me, view.map.me.incarnation
        advertised = self.advertised = AdvertisedInterests(me, True, incarnation, self._interests_max, self._number)
        advertised.change(list(self._own.filters), [], self._own.groups, [], list(self._own.listening))
        self._included = self._others()
        for broker in self._included:
            owner = view.interests.owners.get((broker, False))
            if owner is not None:
                advertised.change(list(owner.filters), [], list(owner.groups), [], list(owner.listening))
        advertised.number_from(self._number + 1)
        self._teller.tell_interests(advertised.snapshot())
        self._look_whether_settled()

    def _go_on(self) -> None:
        """Members came or went. If another broker is to lead, it includes the new members."""
        if self._is_done():
            self._end()
            return
        others = self._others()
        if self._view.paths.leader != self._view.me:
            others = {broker: None for broker in self._included if broker in others}
        difference = Difference()
        for broker in [*self._included, *others]:
            came, went = broker in others, broker in self._included
            if came is went:
                continue
            owner = self._view.interests.owners.get((broker, False)) or Owner(broker, False)
            if came:
                difference.came.extend(owner.filters)
                difference.listening_came.extend(owner.listening)
                difference.groups_came.extend(owner.groups)
            else:
                difference.went.extend(owner.filters)
                difference.listening_went.extend(owner.listening)
                difference.groups_went.extend(owner.groups)
        self._included = others
        self._change(difference)

    def _is_done(self) -> bool:
        """True if another broker leads and all gateways name it, so that what comes from other clusters is matched
        with its interests."""
        view = self._view
        named = [gateway.leader for broker, gateway in view.gateways_here().items() if broker != view.me]
        return view.me not in (self.leader, *named)

    def _end(self) -> None:
        assert self.advertised is not None
        incarnation, number = self.advertised.age
        self._number = number + 1
        self.advertised = None
        self._included = {}
        view = self._view
        self._teller.tell_interests(snapshot_of(view.me, True, (incarnation, self._number), [], []))

    def due_for(self, broker: int) -> tuple[int, int, int] | tuple[()] | None:
        """If we are to lead: the number of our advertised interests once they include this member, empty until then."""
        view = self._view
        if view.map.paths.leader != view.me or not view.gateways_here():
            return None
        if self.advertised is None or not (broker == view.me or broker in self._included):
            return ()
        return (view.me, *self.advertised.age)

    def hear(self, broker: int, difference: Difference) -> None:
        """A member of our cluster, or this broker itself, wants more or less than before."""
        if self.advertised is not None and (broker == self._view.me or broker in self._included):
            self._change(difference)

    def _change(self, difference: Difference) -> None:
        advertised = self.advertised
        assert advertised is not None
        change = advertised.change(
            difference.came,
            difference.went,
            difference.groups_came,
            difference.groups_went,
            difference.listening_came,
            difference.listening_went,
        )
        if change is not None:
            self._teller.tell_interests(advertised.bodies(change))
        self._look_whether_settled()

    @property
    def is_settled(self) -> bool:
        """False if there is more to tell as a result of earlier changes."""
        return self.advertised is None or self.advertised.is_settled

    def tell_more(self) -> None:
        """Tell a portion of the rest."""
        if not self.is_settled:
            self._change(Difference())

    def outlive(self, incarnation: int) -> None:
        """We have a newer incarnation: advertise everything again under it."""
        self.gateway_number = 0
        if self.advertised is not None:
            self.advertised.renew(incarnation)
            self._teller.tell_interests(self.advertised.snapshot())

    def announce_gateway(self, now: Instant, renew: bool = False) -> None:
        """Tell our links to other clusters, if there are or were any, and if something about them is new."""
        view = self._view
        me = view.map.me
        known = view.map.gateways.get(me.broker)
        outside = view.linked(inside=False)
        if not (renew or outside or (known is not None and known.outside)):
            return
        self.gateway_number += 1
        record = Gateway(
            broker=me.broker,
            name=me.name,
            cluster=me.cluster,
            leader=self.leader,
            incarnation=me.incarnation,
            number=self.gateway_number,
            outside=outside,
            inside=self._ways_inside({} if known is None else known.inside) if outside else {},
            address=me.address,
            incarnations=view.incarnations_of(outside),
        )
        if not renew and not self._is_due(record, known, now):
            self.gateway_number -= 1
            return
        self._pace.told(now)
        self._teller.tell_record(record, None)
        view.map.learn(record)

    def _is_due(self, record: Gateway, known: Gateway | None, now: Instant) -> bool:
        """True if the record is new and should be told now. The first record waits too: a starting broker finds its
        own cluster first."""
        if known is None and not self._pace.next_at:
            self._pace.told(now)
        if known is not None and (_says(known) == _says(record) or _is_worse(record, known)):
            return _says(known) != _says(record)
        if now < self._pace.next_at:
            self._view.look_again(self._pace.next_at)
            return False
        return True

    def _ways_inside(self, told: dict[int, int]) -> dict[int, int]:
        view = self._view
        costs = view.map.paths.costs
        others = [broker for broker in view.gateways_here() if broker != view.me]
        return {broker: coarse(costs[broker], told.get(broker, 0)) for broker in others}


def _says(gateway: Gateway) -> tuple[object, ...]:
    return (gateway.leader, gateway.outside, gateway.inside, gateway.address, gateway.incarnations)


def _is_worse(now: Gateway, before: Gateway) -> bool:
    """True if a link is gone, or another broker leads."""
    return (
        now.leader != before.leader
        or not before.outside.keys() <= now.outside.keys()
        or not before.inside.keys() <= now.inside.keys()
    )


def coarse(cost: int, told: int = 0) -> int:
    """A cost in steps of about an eighth, or the cost last told if that is close: small changes are not spread."""
    if abs(cost - told) * COARSE <= told:
        return told
    shift = max(0, cost.bit_length() - 4)
    return cost >> shift << shift
