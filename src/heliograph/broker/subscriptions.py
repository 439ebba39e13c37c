"""Subscriptions: the broker's table of local subscriptions, and the making of routes from it.

In:    SUBSCRIBE and UNSUBSCRIBE frames; topics that the route cache does not have.
Out:   CONFIRMED and REFUSED; routes.
State: the tables of topic filters and of conditions, and one route table per access profile.
Not here: the trie (matching/topics.py), conditions (matching/contents.py), the cache's rules (routes.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from struct import pack

from heliograph.broker.access import Access, Profile
from heliograph.broker.config import AccessConfig
from heliograph.broker.contents import Content
from heliograph.broker.hearings import Hearings
from heliograph.broker.links import Link, Links
from heliograph.broker.rights import Rights
from heliograph.broker.routes import Route, RouteTable, Share
from heliograph.broker.routing.destinations import group_id
from heliograph.broker.routing.interests import GROUP_NAME_MAX, RemoteInterest
from heliograph.broker.routing.ports import READY, Sink
from heliograph.broker.routing.routing import Routing
from heliograph.broker.steps import Steps
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Instant, LinkId, Outbox, Timers
from heliograph.matching.boxes.index import IndexFullError
from heliograph.matching.condition import Condition
from heliograph.matching.contents import ContentTable
from heliograph.matching.languages import LANGUAGES, condition_of
from heliograph.matching.topics import TopicTable
from heliograph.model.identity import Identity, Role
from heliograph.model.subscription import Policy, Subscription
from heliograph.model.topics import INBOX_ROOT, covers, created_root, filter_fault, is_wild, topic_fault
from heliograph.notes import ActionDenied
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, Kind, control
from heliograph.wire.limits import SUBSCRIPTIONS_PER_DELIVERY_MAX

REMOVED_AT_ONCE = 256  # subscriptions of a departed link per wake: about a millisecond
BROKERS = Identity(
    "brokers", (Role.BROKER, Role.ADMIN, Role.STORE)
)  # publications from a broker were checked where they entered
MATCHES_PER_STEP = 16  # subscriptions that match a topic, or places searched for them: they take one step
CHARACTERS_PER_STEP = 8  # of a condition that is parsed
COVERED_PER_STEP = 256  # subscriptions that another one might cover
TURNS_MAX = 65_536  # groups, some of which may be gone; after turns are forgotten, the first member is next
SINKS_MAX = 1_024  # remembered combinations of one link's subscriptions


class SubscriptionEntry:
    """A subscription in the table. Compared by identity."""

    __slots__ = ("condition", "link", "subscription")

    def __init__(self, link: Link, subscription: Subscription, condition: Condition | None) -> None:
        self.link = link
        self.subscription = subscription
        self.condition = condition


class Subscriptions:
    """The table of local subscriptions."""

    def __init__(
        self, links: Links, routing: Routing, steps: Steps, outbox: Outbox, timers: Timers, incarnation: int
    ) -> None:
        self._links = links
        self._routing = routing
        self._steps = steps
        self._outbox = outbox
        self._timers = timers
        self._topics: TopicTable[SubscriptionEntry] = TopicTable()
        self._contents: ContentTable[SubscriptionEntry] = ContentTable()
        self._entries: dict[Link, dict[int, SubscriptionEntry]] = {}
        self._tables: dict[Profile, RouteTable] = {}
        self.rights = Rights(timers, lambda root: self.forget(root + b"/#"), self._end_below, self._let_publish)
        self.hearings = Hearings(incarnation, self.rights)
        self._departed: deque[list[SubscriptionEntry]] = deque()
        self.count = 0
        self.has_slow_topics = False  # for some topic, each publication's content has to be examined
        self._turns: dict[int, int] = {}
        brokers = Access(AccessConfig()).profile(BROKERS)
        self.local = RouteTable(brokers, self._resolve_arrived)  # for publications that arrive here as their target
        self.inner = RouteTable(brokers, self._resolve_arrived)  # for publications that arrive from another cluster

    def _let_publish(self, link: LinkId, root: bytes, may: bool) -> None:
        known = self._links.by_id.get(link)
        if known is not None:
            known.let_publish(root, may)

    # -- what clients ask ---------------------------------------------------------------------------------------

    def subscribe(self, link: Link, frame: Frame, now: Instant) -> None:
        """A SUBSCRIBE frame: the subscription is in force when CONFIRMED is written."""
        body = bodies.decode(bodies.Subscribe, frame.payload)
        try:
            subscription, condition = self._checked(link, body)
            entry = SubscriptionEntry(link, subscription, condition)
            self._enter(entry)
        except ProtocolError as error:
            if error.reason is Reason.SUBSCRIBE_DENIED:
                self._outbox.note(ActionDenied(link.id, link.identity.entity, error.reason, body.filter[:256]))
            self._refuse(link, frame.sequence, error)
            return
        self._count_wide(subscription.filter)
        self._entries.setdefault(link, {})[subscription.number] = entry
        link.subscriptions[subscription.number] = subscription
        self.count += 1
        self._routing.local_change([subscription], [])
        if body.wide:
            self._routing.when_known(lambda now: self._links.put(link, control(Kind.CONFIRMED, frame.sequence)), now)
        else:
            self._links.put(link, control(Kind.CONFIRMED, frame.sequence))

    def unsubscribe(self, link: Link, frame: Frame, now: Instant) -> None:
        """An UNSUBSCRIBE frame."""
        body = bodies.decode(bodies.Unsubscribe, frame.payload)
        entry = self._entries.get(link, {}).pop(body.number, None)
        if entry is None:
            error = ProtocolError(Reason.SUBSCRIPTION_UNKNOWN, f"no subscription has number {body.number}")
            self._refuse(link, frame.sequence, error)
            return
        del link.subscriptions[body.number]
        self._count_wide(entry.subscription.filter)
        link.sinks.clear()
        self._remove([entry])
        self._links.put(link, control(Kind.CONFIRMED, frame.sequence))

    def _count_wide(self, pattern: bytes) -> None:
        """Spend steps for a filter with wildcards that comes or goes: it may cover or uncover all others."""
        if is_wild(pattern):
            self._steps.spend(self.count // COVERED_PER_STEP)

    def _enter(self, entry: SubscriptionEntry) -> None:
        """Put a subscription into its table, and update the cached routes."""
        subscription = entry.subscription
        if entry.condition is None:
            self._topics.add(subscription.filter, entry)
            self._admit(entry)
            return
        try:
            is_new = self._contents.add(subscription.filter, entry.condition, entry)
        except IndexFullError as error:
            raise ProtocolError(Reason.SUBSCRIPTIONS_OVER_LIMIT, str(error)) from None
        if is_new:
            self.forget(subscription.filter)

    def _checked(self, link: Link, body: bodies.Subscribe) -> tuple[Subscription, Condition | None]:
        limits = self._links.limits
        if body.language != "topic" and body.language not in LANGUAGES:
            known = ", ".join(("topic", *LANGUAGES))
            raise ProtocolError(Reason.LANGUAGE_UNSUPPORTED, f"no language {body.language[:64]!r}; there are {known}")
        if body.policy not in list(Policy):
            raise ProtocolError(Reason.BODY_MALFORMED, f"policy must be one of {', '.join(Policy)}")
        if not 0 <= body.number < 1 << 32:
            raise ProtocolError(Reason.BODY_MALFORMED, "number must fit 32 bits")
        if body.number in link.subscriptions:
            raise ProtocolError(Reason.SUBSCRIPTION_TAKEN, f"number {body.number} is in use on this link")
        if len(link.subscriptions) >= limits.subscriptions_per_link_max:
            raise ProtocolError(
                Reason.SUBSCRIPTIONS_OVER_LIMIT, f"at most {limits.subscriptions_per_link_max} on one link"
            )
        if self.count >= limits.subscriptions_max:
            raise ProtocolError(Reason.SUBSCRIPTIONS_OVER_LIMIT, f"at most {limits.subscriptions_max} at this broker")
        pattern = body.filter.encode("utf-8", "surrogatepass")
        fault = filter_fault(pattern)
        if fault is not None:
            raise ProtocolError(Reason.FILTER_INVALID, f"{body.filter[:128]!r}: {fault}")
        assert link.table is not None
        entity = link.identity.entity
        profile = link.table.profile
        if not profile.may_filter(pattern) or profile.is_foreign(pattern, link.identity):
            raise ProtocolError(Reason.SUBSCRIBE_DENIED, f"{entity} may not subscribe to {body.filter}")
        if not self._is_granted(link, profile, pattern):
            text = f"{entity} has no grant to subscribe to {body.filter}; its owner gives them: heliograph topic grant"
            raise ProtocolError(Reason.SUBSCRIBE_DENIED, text)
        if pattern.startswith(INBOX_ROOT + b"/") and not covers(link.inbox + b"/#", pattern):
            raise ProtocolError(Reason.SUBSCRIBE_DENIED, "an inbox is for its own session only")
        if len(body.group) > GROUP_NAME_MAX or not body.group.isprintable():
            raise ProtocolError(Reason.BODY_MALFORMED, f"group must be printable, at most {GROUP_NAME_MAX} characters")
        if body.group and body.listens:
            raise ProtocolError(Reason.BODY_MALFORMED, "a member of a group answers requests: listens is for others")
        policy = Policy(body.policy)
        if body.language == "topic":
            if body.where:
                raise ProtocolError(Reason.BODY_MALFORMED, f"a condition needs a language: {', '.join(LANGUAGES)}")
            return Subscription(body.number, pattern, policy, body.echo, body.group, listens=body.listens), None
        self._steps.spend(len(body.where) // CHARACTERS_PER_STEP)
        condition = condition_of(body.language, body.where)
        asked = (condition.language, condition.text)
        return Subscription(body.number, pattern, policy, body.echo, body.group, *asked, body.listens), condition

    def _refuse(self, link: Link, number: int, error: ProtocolError) -> None:
        self._links.count(error.reason)
        self._links.put(link, control(Kind.REFUSED, number, bodies.refusal(error.reason, error.detail)))

    # -- routes -------------------------------------------------------------------------------------------------

    def table(self, profile: Profile) -> RouteTable:
        """The route table of a profile."""
        table = self._tables.get(profile)
        if table is None:
            table = self._tables[profile] = RouteTable(profile, self._resolve_scanned)
        return table

    def _resolve_scanned(self, table: RouteTable, topic: bytes) -> Route | None:
        """For the scan: None if it has to stop, because the topic is invalid or this read has taken too long."""
        if self._steps.left <= 0 or topic_fault(topic):
            return None
        self._steps.spend(1)
        return self._resolve_guarded(table, topic)

    def _resolve_arrived(self, table: RouteTable, topic: bytes) -> Route | None:
        return None if topic_fault(topic) else self._resolve_guarded(table, topic)

    def _resolve_guarded(self, table: RouteTable, topic: bytes) -> Route | None:
        """None also if that raises: the publication is then dropped alone, like one whose topic is invalid."""
        try:
            return self.resolve(table, topic)
        except Exception as error:
            self._outbox.guard.caught("topic", error, 0)
            return None

    def drop_table(self, table: RouteTable) -> None:
        """No link uses this table any more."""
        del self._tables[table.profile]

    def resolve(self, table: RouteTable, topic: bytes) -> Route:
        """Compute and remember the route of a valid topic, for publishers of this table's profile."""
        routes_max = max(1, self._links.limits.routes_max // max(1, len(self._tables)))
        if not table.profile.may("publish", topic):
            return table.keep(topic, (), routes_max, denied=True)
        here = self._contents.fields(topic)
        there = self._routing.fields(topic) if table is not self.local else ()
        content = None
        guard = created_root(topic) if table.profile.asks_grant("publish", topic) else None
        if here or there:

            def build(local: list[SubscriptionEntry], remote: list[RemoteInterest]) -> Route:
                sinks, shares = self._recipients(table, topic, local, remote)
                return Route(sinks, shares=shares)

            content = Content(here, there, build)
        sinks, shares = self._recipients(table, topic, (), ())
        self.has_slow_topics |= content is not None or bool(shares)
        return table.keep(topic, sinks, routes_max, shares=shares, content=content, guard=guard)

    def may_hear(self, link: Link, topic: bytes) -> bool:
        """True if this link would receive publications on this topic if it subscribed to it now."""
        assert link.table is not None
        return link.table.profile.may_hear(topic, link.identity, partial(self.rights.may_subscribe, link.id))

    def _is_granted(self, link: Link, profile: Profile, topic: bytes) -> bool:
        return profile.is_granted(topic, link.identity, partial(self.rights.may_subscribe, link.id))

    def _end_below(self, link_id: int, root: bytes, reason: Reason) -> None:
        """A link may no longer use a created topic: its subscriptions end, here and elsewhere."""
        link = self._links.by_id.get(link_id)
        if link is not None:
            self.hearings.renew(link)
        entries = {} if link is None else self._entries.get(link, {})
        gone = [entry for entry in entries.values() if covers(root + b"/#", entry.subscription.filter)]
        for entry in gone:
            assert link is not None
            number, subject = entry.subscription.number, entry.subscription.filter.decode()
            del entries[number]
            del link.subscriptions[number]
            link.sinks.clear()
            self._links.count(reason)
            body = bodies.refusal(reason, f"the right to subscribe to {subject} has ended", subject)
            self._links.put(link, control(Kind.REFUSED, 0, body))
        self._remove(gone)

    def _recipients(
        self, table: RouteTable, topic: bytes, local: Sequence[SubscriptionEntry], remote: Sequence[RemoteInterest]
    ) -> tuple[tuple[Sink, ...], tuple[Share, ...]]:
        """The sinks and shares of a topic, together with these conditional matches."""
        if len(self._turns) > TURNS_MAX:
            self._turns.clear()
        sinks, members = self._sinks(topic, local)
        elsewhere = self._routing.destinations.elsewhere(topic, table is self.inner or table is self.local, remote)
        if table is not self.local:
            sinks += elsewhere.hops
        shares = tuple(
            Share(share, members.get(share, []), elsewhere.shares.get(share, []), self._turns)
            for share in {**members, **elsewhere.shares}
        )
        return sinks, shares

    def _sinks(
        self, topic: bytes, local: Sequence[SubscriptionEntry]
    ) -> tuple[tuple[Sink, ...], dict[int, list[Sink]]]:
        """The local sinks of a topic, and the local members of the groups that share it."""
        per_link: dict[Link, list[Subscription]] = {}
        members: dict[int, list[Sink]] = {}
        allowed: dict[RouteTable, bool] = {}
        found = [*self._topics.match(topic), *local]
        self._steps.spend((len(found) + self._topics.visited) // MATCHES_PER_STEP)
        for entry in found:
            link = entry.link
            if link.state != READY:
                continue
            table = link.table
            assert table is not None
            may = allowed.get(table)
            if may is None:
                may = allowed[table] = table.profile.may("subscribe", topic)
            subscription = entry.subscription
            if may and not self._is_granted(link, table.profile, topic):
                continue
            if may and subscription.group:
                share = group_id(subscription.wanted, subscription.group)
                members.setdefault(share, []).append(_sink(link, [subscription]))
            elif may:
                per_link.setdefault(link, []).append(subscription)
        return tuple(_sink(link, subscriptions) for link, subscriptions in per_link.items()), members

    def _admit(self, entry: SubscriptionEntry) -> None:
        """Add a new subscription to the cached routes."""
        link, subscription = entry.link, entry.subscription
        if subscription.group:
            self.forget(subscription.filter)
            return
        assert link.table is not None
        profile = link.table.profile
        sink = _sink(link, [subscription])
        for table in self._every_table():
            table.admit(
                subscription.filter,
                sink,
                lambda topic: profile.may("subscribe", topic) and self._is_granted(link, profile, topic),
            )

    def _dismiss(self, entry: SubscriptionEntry) -> None:
        """Remove a subscription from the cached routes."""
        subscription = entry.subscription
        if subscription.group:
            self.forget(subscription.filter)
            return
        numbers = pack("<I", subscription.number)
        for table in self._every_table():
            table.dismiss(subscription.filter, entry.link, numbers)

    def forget(self, pattern: bytes) -> None:
        """An interest in this filter came or went."""
        for table in self._every_table():
            table.forget(pattern)

    def forget_all(self) -> None:
        """The rules or the paths changed: every route has to be computed again."""
        for table in self._every_table():
            table.clear()

    def _every_table(self) -> Iterator[RouteTable]:
        yield self.local
        yield self.inner
        yield from self._tables.values()

    # -- going --------------------------------------------------------------------------------------------------

    def leave(self, link: Link, now: Instant) -> None:
        """A link is gone: remove its subscriptions, a slice at a time."""
        entries = self._entries.pop(link, None)
        self.rights.leave(link.id, (link.origin, link.identity), now)
        for table in self._every_table():
            table.unshare()
        if entries:
            self._departed.append(list(entries.values()))
            self._remove_some(now)

    def _remove_some(self, now: Instant) -> None:
        gone: list[SubscriptionEntry] = []
        while self._departed and len(gone) < REMOVED_AT_ONCE:
            entries = self._departed[0]
            while entries and len(gone) < REMOVED_AT_ONCE:
                gone.append(entries.pop())
            if not entries:
                self._departed.popleft()
        self._remove(gone)
        if self._departed:
            self._timers.set("departed", now, self._remove_some)

    def _remove(self, entries: list[SubscriptionEntry]) -> None:
        for entry in entries:
            pattern = entry.subscription.filter
            if entry.condition is None:
                self._topics.remove(pattern, entry)
                self._dismiss(entry)
            elif self._contents.remove(pattern, entry.condition, entry):
                self.forget(pattern)
        self.count -= len(entries)
        if entries:
            self._routing.local_change([], [entry.subscription for entry in entries])

    # -- looking ------------------------------------------------------------------------------------------------

    def report(self) -> list[dict[str, object]]:
        """A row for every subscription of a client; those of the node's own services are left out."""
        return [
            {
                "link": link.id,
                "entity": link.identity.entity,
                "number": subscription.number,
                "filter": subscription.filter.decode(),
                "policy": subscription.policy.value,
                "echo": subscription.echo,
                "group": subscription.group,
                "listens": subscription.listens,
                "language": subscription.language,
                "where": subscription.where,
            }
            for link in self._entries
            if not link.is_pipe
            for subscription in link.subscriptions.values()
        ]

    def conditional(self, topic: bytes) -> list[SubscriptionEntry]:
        """The conditional subscriptions to this topic."""
        return [found for field in self._contents.fields(topic) for entry in field.entries for found in entry.values]

    @property
    def routes_cached(self) -> int:
        """How many topics are in the route caches."""
        return sum(len(table.routes) for table in self._every_table())


def _sink(link: Link, subscriptions: list[Subscription]) -> Sink:
    """The sink of a link for these matching subscriptions; the same combination gives the same sink."""
    subscriptions.sort(key=lambda subscription: subscription.number)
    del subscriptions[SUBSCRIPTIONS_PER_DELIVERY_MAX:]
    key = tuple(subscription.number for subscription in subscriptions)
    sink = link.sinks.get(key)
    if sink is None:
        if len(link.sinks) >= SINKS_MAX:
            link.sinks.clear()
        sink = link.sinks[key] = _new_sink(link, subscriptions)
    return sink


def _new_sink(link: Link, subscriptions: list[Subscription]) -> Sink:
    echoed = [subscription for subscription in subscriptions if subscription.echo]
    own: Sink | bool
    if len(echoed) == len(subscriptions):
        own = True
    else:
        own = _new_sink(link, echoed) if echoed else False
    numbers = pack(f"<{len(subscriptions)}I", *(subscription.number for subscription in subscriptions))
    holds = any(subscription.policy is Policy.HOLD for subscription in subscriptions)
    disconnects = any(subscription.policy is Policy.DISCONNECT for subscription in subscriptions)
    listens = all(subscription.listens for subscription in subscriptions)
    return Sink(link, numbers, own, holds, disconnects, listens)
