"""Routes: from a topic to the links that get it, remembered per access profile.

In:    topics, and calls for every subscription that comes or goes.
Out:   Route: the sinks of a run.
State: per profile a bounded cache topic → Route, and which topics are in it, so that a change touches only what it
       concerns.
Not here: finding subscriptions (matching/topics.py), queues and writes (broker/links.py).

The cache is the fast path of the broker: access rules, wildcards and fan-out are settled once per topic. A subscription
that comes or goes changes only the routes of the topics that its filter matches, in place if that is simple. With
100,000 topics in use and 100 changes a second, forgetting everything would mean resolving every publication again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from heliograph.broker import hot
from heliograph.broker.access import Profile
from heliograph.broker.contents import Content
from heliograph.broker.routing.ports import Port, Sink
from heliograph.broker.routing.targets import Targets
from heliograph.matching.topics import TopicSet
from heliograph.model.topics import is_wild

if TYPE_CHECKING:
    from heliograph.broker import _native

FORGET_STEPS_MAX = 4_096  # if a filter touches more, forgetting everything is cheaper
EVICTED_AT_ONCE = 1_024
SHARED_MAX = 4_096


class Share:
    """A shared subscription on one topic: each publication goes to one of its members."""

    __slots__ = ("elsewhere", "id", "members", "turns")

    def __init__(self, id: int, members: list[Sink], elsewhere: list[Targets], turns: dict[int, int]) -> None:
        self.id = id
        self.members = members  # at this broker
        self.elsewhere = elsewhere  # brokers and clusters that have members, nearest first
        self.turns = turns  # the member whose turn it is, per share; outlives cached routes

    def member(self, publisher: Port) -> Sink | None:
        """The local member whose turn it is: not a slow one while another keeps up, and not the publisher itself."""
        members = self.members
        turn = self.turns.get(self.id, 0)
        slow: Sink | None = None
        for step in range(turn, turn + len(members)):
            sink = members[step % len(members)]
            if sink.link is publisher and not sink.own:
                continue
            if not (sink.link.pressed or sink.link.backlog):
                self.turns[self.id] = step + 1
                return sink
            slow = slow or sink
        self.turns[self.id] = turn + 1
        return slow


class Route:
    """The sinks of publications of one topic. ``only`` is the only sink, if the route has nothing else; ``one`` is
    the same if the publisher does not matter; ``guarded`` is the only sink of a created topic, for those that may
    publish below ``guard``. _native.c reads these four."""

    __slots__ = ("content", "denied", "guard", "guarded", "one", "only", "shares", "sinks")

    def __init__(
        self,
        sinks: tuple[Sink, ...],
        denied: bool = False,
        shares: tuple[Share, ...] = (),
        content: Content[Any, Any, Route] | None = None,
        guard: bytes | None = None,
    ) -> None:
        self.sinks = sinks
        self.guard = guard  # the root of a created topic, to which a publisher needs a right (rights.py)
        self.denied = denied
        self.shares = shares
        self.content = content  # if set, it finds the route of each publication; this route is by topic only
        single = sinks[0] if len(sinks) == 1 and not (shares or content) else None
        self.only = single if guard is None else None
        self.guarded = None if guard is None or denied or single is None or single.own is not True else single
        self.one = self.only if self.only is not None and self.only.own is True else None

    @property
    def answers_here(self) -> bool:
        """True if a client of this broker, or a member of a group anywhere, may answer a request."""
        if any(share.members or share.elsewhere for share in self.shares):
            return True
        return any(sink.neighbour is None and not sink.listens for sink in self.sinks)


class PlainRoutes(dict[bytes, Route]):
    """Topic → Route. A missing topic is resolved when it is looked up; None if it is not a valid topic."""

    __slots__ = ("resolve",)

    def __init__(self) -> None:
        super().__init__()
        self.resolve: Callable[[bytes], Route | None]

    def __missing__(self, topic: bytes) -> Route | None:
        return self.resolve(topic)

    def some(self, count: int) -> list[bytes]:
        """This many topics: the oldest in the cache."""
        return list(islice(self, count))


Routes: type[PlainRoutes | _native.Routes] = PlainRoutes
if hot.is_native:
    from heliograph.broker import _native

    Routes = _native.Routes


class RouteTable:
    """The cached routes of one profile. ``routes`` is handed to the scan, read by _native.c, and never replaced."""

    __slots__ = ("_shared", "_topics", "links", "profile", "routes")

    def __init__(self, profile: Profile, resolve: Callable[[RouteTable, bytes], Route | None]) -> None:
        self.profile = profile
        self.routes = Routes()
        self.routes.resolve = partial(resolve, self)
        self.links = 0  # how many links use this table
        self._topics = TopicSet()
        self._shared: dict[tuple[Sink, ...], Route] = {}

    def join(self) -> None:
        """One more link uses this table."""
        self.links += 1

    def leave(self) -> int:
        """One link less uses this table. Returns how many are left."""
        self.links -= 1
        return self.links

    def keep(
        self,
        topic: bytes,
        sinks: tuple[Sink, ...],
        routes_max: int,
        *,
        denied: bool = False,
        shares: tuple[Share, ...] = (),
        content: Content[Any, Any, Route] | None = None,
        guard: bytes | None = None,
    ) -> Route:
        """Remember a topic's route. Topics with the same sinks share one Route, so that their frames form one run."""
        if len(self.routes) >= routes_max:
            self._evict()
        plain = not (denied or shares or content or guard)
        route = self._route(sinks) if plain else Route(sinks, denied, shares, content, guard)
        self.routes[topic] = route
        self._topics.add(topic)
        return route

    def forget(self, pattern: bytes) -> None:
        """An interest in this filter came or went."""
        for topic in self._touched(pattern):
            self._drop(topic)

    def admit(self, pattern: bytes, sink: Sink, may: Callable[[bytes], bool]) -> None:
        """A subscription came: topics that its filter matches go to this sink too, if ``may`` allows the topic.

        Cheaper than forgetting: a wildcard may touch a thousand topics, and most of them have the same few routes.
        """
        made: dict[Route, Route | None] = {}
        for topic in self._touched(pattern):
            old = self.routes[topic]
            if old.denied or not may(topic):
                continue
            if old not in made:
                made[old] = self._with(old, sink)
            self._put(topic, made[old])

    def dismiss(self, pattern: bytes, link: Port, numbers: bytes) -> None:
        """A subscription went: what its filter matches no longer goes to that link, unless for other reasons."""
        made: dict[Route, Route | None] = {}
        for topic in self._touched(pattern):
            old = self.routes[topic]
            if old.denied:
                continue
            if old not in made:
                made[old] = self._without(old, link, numbers)
            self._put(topic, made[old])

    def _with(self, old: Route, sink: Sink) -> Route | None:
        """The route with one more sink; None if its link is already in it, so that numbers must be merged."""
        if old.shares or old.content or old.guard or any(one.link is sink.link for one in old.sinks):
            return None
        return self._route((*old.sinks, sink))

    def _without(self, old: Route, link: Port, numbers: bytes) -> Route | None:
        """The route without the link; None if the link has other reasons to be in it."""
        if old.shares or old.content or old.guard:
            return None
        if any(one.link is link and one.numbers != numbers for one in old.sinks):
            return None
        return self._route(tuple(one for one in old.sinks if one.link is not link))

    def _put(self, topic: bytes, route: Route | None) -> None:
        if route is None:
            self._drop(topic)
        else:
            self.routes[topic] = route

    def _drop(self, topic: bytes) -> None:
        del self.routes[topic]
        self._topics.discard(topic)

    def _touched(self, pattern: bytes) -> list[bytes]:
        """The cached topics that a filter matches; if there are too many, all are forgotten and none is left."""
        if not is_wild(pattern):
            return [pattern] if pattern in self.routes else []
        topics = self._topics.matching(pattern, FORGET_STEPS_MAX)
        if topics is None:
            self.clear()
            return []
        return topics

    def clear(self) -> None:
        """Forget every route."""
        self.routes.clear()
        self._topics.clear()
        self._shared.clear()

    def unshare(self) -> None:
        """Sinks are gone: no new topic may share a route that names them."""
        self._shared.clear()

    def _route(self, sinks: tuple[Sink, ...]) -> Route:
        route = self._shared.get(sinks)
        if route is None:
            route = Route(sinks)
            if len(self._shared) < SHARED_MAX:
                self._shared[sinks] = route
        return route

    def _evict(self) -> None:
        for topic in self.routes.some(EVICTED_AT_ONCE):
            del self.routes[topic]
            self._topics.discard(topic)
