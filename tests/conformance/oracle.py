"""The oracle: a broker as docs/reference/protocol.md describes it, slow and obviously right.

In:    the same inputs as the real broker (attach, receive, detach, press), in the same order.
Out:   per link, everything that must be said on it, in order (``said``), why it ended, and for whom it is held.
State: plain lists and dicts; every question is answered by looking at all of them.
Not here: time (keep-alive, handshakes, the horizon of origins), drain and services, which have tests of their own.

It imports nothing of heliograph and parses its own bytes (grammar.py) and conditions (wishes.py).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

from tests.conformance import grammar, wishes
from tests.conformance.grammar import EndError, Frame


@dataclass(frozen=True)
class Rule:
    """One line of the access list."""

    effect: str
    verbs: tuple[str, ...]
    topics: tuple[str, ...]
    who: tuple[str, ...] = ("*",)


@dataclass(frozen=True)
class Settings:
    """What an operator may set, as far as sessions show it."""

    rules: tuple[Rule, ...] = ()
    default: str = "allow"
    payload_bytes_max: int = 1 << 20
    subscriptions_per_link_max: int = 100_000
    gaps_max: int = 1_024
    queue_frames_max: int = 65_536
    wall_us: int = 1_700_000_000_000_000


@dataclass(frozen=True)
class Said:
    """One thing that the broker says on a link. ``what`` is a kind in small letters; a publication is an "event"."""

    what: str
    number: int = 0  # of the request or PING; of an event: how many were lost when it was handed over
    reason: str = ""
    subject: str = ""
    numbers: tuple[int, ...] = ()  # of the subscriptions that matched
    raw: bytes = b""  # of the EVENT
    must_stay: bool = field(default=True, compare=False)  # False: it may be dropped from a full queue
    must_be_said: bool = field(default=True, compare=False)  # False: the page lets the broker leave it out

    def __repr__(self) -> str:
        if self.what != "event":
            parts = (self.what, str(self.number or ""), self.reason, repr(self.subject) if self.subject else "")
            return " ".join(part for part in parts if part)
        event = grammar.take_apart(self.raw)
        lost = f", {self.number} lost" if self.number else ""
        payload = event.payload.decode(errors="replace")
        return f"event {event.topic.decode()} #{event.sequence} ({payload}) for {list(self.numbers)}{lost}"


@dataclass
class Subscription:
    """What a client asked for."""

    number: int
    pattern: str
    policy: str
    echo: bool
    where: str  # a condition; empty if nothing is asked but the topic


@dataclass
class Numbers:
    """What is remembered of one origin: the highest sequence, and the spans below it that never came."""

    highest: int = -1
    gaps: list[tuple[int, int]] = field(default_factory=list)  # oldest first

    def admit(self, sequence: int, gaps_max: int) -> bool:
        """True if this sequence is new; it counts as seen from now on."""
        if sequence > self.highest:
            if sequence > self.highest + 1:
                self.gaps.append((self.highest + 1, sequence - 1))
            self.highest = sequence
        else:
            inside = [gap for gap in self.gaps if gap[0] <= sequence <= gap[1]]
            if not inside:
                return False
            halves = [(inside[0][0], sequence - 1), (sequence + 1, inside[0][1])]
            place = self.gaps.index(inside[0])
            self.gaps[place : place + 1] = [half for half in halves if half[0] <= half[1]]
        del self.gaps[: max(0, len(self.gaps) - gaps_max)]
        return True


@dataclass(eq=False)
class Link:
    """One link and the session on it."""

    number: int
    entity: str
    roles: tuple[str, ...]
    buffer: bytes = b""
    origin: int | None = None  # None until it is welcomed
    ready_to_wait: bool = False
    subscriptions: list[Subscription] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    ended: str | None = None  # the reason for which the broker ended it
    pressed: bool = False
    queue: list[Said] = field(default_factory=list)
    lost: int = 0
    waits_for: list[Link] = field(default_factory=list)
    told: list[str] = field(default_factory=list)  # since its last PING: topics on which it may not publish


class Oracle:
    """A broker with no cleverness."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.links: dict[int, Link] = {}  # all there ever were
        self.present: dict[int, Link] = {}  # those attached and not ended
        self.origins: dict[int, Numbers] = {}
        self.slow: dict[int | None, None] = {}  # origins whose last link ended with slow_consumer, until they know it
        self.undecided = False  # something happened of which the page does not say how it ends

    # -- inputs -----------------------------------------------------------------------------------------------

    def attach(self, link: int, entity: str, roles: tuple[str, ...]) -> None:
        self.links[link] = self.present[link] = Link(link, entity, roles)

    def detach(self, link: int) -> None:
        if link in self.present:
            self._remove(self.present[link])

    def press(self, link: int, pressed: bool) -> None:
        if link not in self.present:
            return
        slow = self.present[link]
        slow.pressed = pressed
        if not pressed:
            for said in slow.queue:
                slow.said.append(replace(said, number=slow.lost) if said.what == "event" else said)
            slow.queue.clear()
            self._release(slow)

    def receive(self, link: int, data: bytes) -> None:
        if link not in self.present:
            return
        session = self.present[link]
        session.buffer += data
        try:
            while link in self.present and len(session.buffer) >= 28:
                size = grammar.check_head(session.buffer)
                if len(session.buffer) < size:
                    return
                frame = grammar.take_apart(session.buffer[:size])
                session.buffer = session.buffer[size:]
                self._frame(session, frame)
                if session.ended == "slow_consumer" and frame.kind == grammar.EVENT and session.buffer:
                    # Its own publications ended its link. Those that came along with them may be routed or not.
                    self.undecided = True
        except EndError as end:
            self._end(session, str(end))

    # -- frames -----------------------------------------------------------------------------------------------

    def _frame(self, session: Link, frame: Frame) -> None:
        if frame.kind >= grammar.HELLO and frame.kind in grammar.KINDS and frame.flags:
            raise EndError("flags_unknown")
        if session.origin is None:
            if frame.kind != grammar.HELLO:
                raise EndError("kind_unexpected")
            self._hello(session, grammar.read_json(frame.payload, "versions", "secret"))
        elif frame.kind not in grammar.KINDS:
            raise EndError("kind_unknown")
        elif frame.kind == grammar.EVENT:
            self._event(session, frame)
        elif frame.kind == grammar.PING:
            session.told.clear()
            self._say(session, Said("pong", frame.sequence))
        elif frame.kind == grammar.SUBSCRIBE:
            self._subscribe(session, frame.sequence, grammar.read_json(frame.payload, "number", "filter"))
        elif frame.kind == grammar.UNSUBSCRIBE:
            self._unsubscribe(session, frame.sequence, grammar.read_json(frame.payload, "number"))
        elif frame.kind == grammar.SERVICE:
            self._ask(session, frame)
        elif frame.kind == grammar.GOODBYE:
            self._end(session, "goodbye")
        elif frame.kind == grammar.PONG:
            self.slow.pop(session.origin, None)
        else:
            raise EndError("kind_unexpected")

    def _hello(self, session: Link, body: dict[str, Any]) -> None:
        if 1 not in body["versions"]:
            raise EndError("version_unsupported")
        if body.get("needs"):
            raise EndError("feature_unsupported")
        secret = bytes.fromhex(body["secret"])
        session.origin = int.from_bytes(hashlib.sha256(secret).digest()[:8], "little")
        session.ready_to_wait = body.get("hold", False)
        for older in list(self.present.values()):
            if older is not session and older.origin == session.origin:
                self._end(older, "taken_over")
        known = self.origins.get(session.origin)
        slow = session.origin in self.slow
        self._say(session, Said("welcome", int(slow), subject=f"{known.highest:016x}" if known else ""))
        if slow:
            self._say(session, Said("ping"))

    def _event(self, publisher: Link, event: Frame) -> None:
        if event.flags & ~grammar.EXPIRES:
            raise EndError("flags_unknown")
        if event.origin != publisher.origin:
            raise EndError("origin_foreign")
        fault = _fault(event)
        if not self._is_new(event):
            return
        if fault:
            self._say(publisher, Said("refused", 0, fault, event.topic[:256].decode(errors="replace")))
        elif self._is_expired(event):
            return
        elif not self.may(publisher, "publish", event.topic.decode()):
            self._deny(publisher, event.topic.decode())
        else:
            self._deliver(publisher, event)

    def _deny(self, publisher: Link, topic: str) -> None:
        self._say(publisher, Said("refused", 0, "publish_denied", topic, must_be_said=topic not in publisher.told))
        publisher.told.append(topic)

    def _is_new(self, event: Frame) -> bool:
        return self.origins.setdefault(event.origin, Numbers()).admit(event.sequence, self.settings.gaps_max)

    def _is_expired(self, event: Frame) -> bool:
        expiry = grammar.expiry_of(event.headers) if event.flags & grammar.EXPIRES else None
        return expiry is not None and self.settings.wall_us > expiry

    def _deliver(self, publisher: Link, event: Frame) -> None:
        topic = event.topic.decode()
        for link in list(self.present.values()):
            wanted = [
                subscription
                for subscription in link.subscriptions
                if grammar.matches(subscription.pattern, topic)
                and (subscription.echo or link is not publisher)
                and (not subscription.where or wishes.fits(subscription.where, event.headers))
            ]
            if not wanted or not self.may(link, "subscribe", topic):
                continue
            policies = [subscription.policy for subscription in wanted]
            waits = "hold" in policies and publisher.ready_to_wait
            numbers = tuple(sorted(subscription.number for subscription in wanted))
            stay = waits or "disconnect" in policies
            self._say(link, Said("event", link.lost, numbers=numbers, raw=event.raw, must_stay=stay), publisher, waits)

    def _subscribe(self, session: Link, request: int, body: dict[str, Any]) -> None:
        number, pattern = body["number"], body["filter"]
        language, where = body.get("language", "topic"), body.get("where", "")
        objection = self._objection(session, number, pattern, language) or _complaint(language, where)
        if objection:
            self._say(session, Said("refused", request, objection))
            return
        policy, echo = body.get("policy", "drop_oldest"), body.get("echo", True)
        session.subscriptions.append(Subscription(number, pattern, policy, echo, where))
        self._say(session, Said("confirmed", request))

    def _objection(self, session: Link, number: int, pattern: str, language: str) -> str:
        if language not in ("topic", "predicates"):
            return "language_unsupported"
        if number in [subscription.number for subscription in session.subscriptions]:
            return "subscription_taken"
        if len(session.subscriptions) >= self.settings.subscriptions_per_link_max:
            return "subscriptions_over_limit"
        if not grammar.is_filter(pattern):
            return "filter_invalid"
        if not self.may_subscribe(session, pattern):
            return "subscribe_denied"
        return ""

    def _unsubscribe(self, session: Link, request: int, body: dict[str, Any]) -> None:
        left = [subscription for subscription in session.subscriptions if subscription.number != body["number"]]
        if len(left) == len(session.subscriptions):
            self._say(session, Said("refused", request, "subscription_unknown"))
            return
        session.subscriptions = left
        self._say(session, Said("confirmed", request))

    def _ask(self, session: Link, request: Frame) -> None:
        """No service is joined, so the answer is always no; the only question is why."""
        if request.flags:
            raise EndError("flags_unknown")
        name = request.topic.decode(errors="replace")
        may = self.may(session, "ask", name)
        reason = "service_unknown" if may else "ask_denied"
        self._say(session, Said("service", request.sequence, reason, name))

    # -- access -----------------------------------------------------------------------------------------------

    def may(self, session: Link, verb: str, topic: str) -> bool:
        """The first rule that fits decides."""
        for effect, pattern in self._rules_for(session, verb):
            if grammar.matches(pattern, topic):
                return effect == "allow"
        if verb == "ask":
            return topic != "admin" or "admin" in session.roles
        return self._otherwise(session, topic)

    def may_subscribe(self, session: Link, pattern: str) -> bool:
        """The first rule decides that allows some of the filter's topics, or denies all of them."""
        for effect, topics in self._rules_for(session, "subscribe"):
            if effect == "allow" and grammar.overlaps(topics, pattern):
                return True
            if effect == "deny" and grammar.covers(topics, pattern):
                return False
        return self._otherwise(session, pattern)

    def _rules_for(self, session: Link, verb: str) -> list[tuple[str, str]]:
        rules = [
            rule for rule in self.settings.rules if verb in rule.verbs and any(_means(who, session) for who in rule.who)
        ]
        return [(rule.effect, pattern) for rule in rules for pattern in rule.topics]

    def _otherwise(self, session: Link, name: str) -> bool:
        if grammar.is_system(name):
            return "admin" in session.roles or "broker" in session.roles
        return self.settings.default == "allow" or "admin" in session.roles

    # -- saying it, at once or from a queue ---------------------------------------------------------------------

    def _say(self, link: Link, said: Said, publisher: Link | None = None, waits: bool = False) -> None:
        if not link.pressed:
            link.said.append(said)
            return
        link.queue.append(said)
        if publisher is not None and waits and 2 * len(link.queue) >= self.settings.queue_frames_max:
            self._hold(publisher, link)
        if len(link.queue) > self.settings.queue_frames_max:
            self._thin_out(link)

    def _thin_out(self, link: Link) -> None:
        may_go = [said for said in link.queue if not said.must_stay]
        if may_go:
            link.queue = [said for said in link.queue if said is not may_go[0]]
            link.lost += 1
        else:
            self._end(link, "slow_consumer")

    def _hold(self, publisher: Link, slow: Link) -> None:
        if slow not in publisher.waits_for:
            publisher.waits_for.append(slow)

    def _release(self, slow: Link) -> None:
        for publisher in self.present.values():
            if slow in publisher.waits_for:
                publisher.waits_for.remove(slow)

    def _end(self, link: Link, reason: str) -> None:
        if link.number in self.present:
            link.ended = reason
            if reason == "slow_consumer" and link.origin is not None:
                self.slow[link.origin] = None
            link.said.append(Said("goodbye", reason=reason))
            self._remove(link)

    def _remove(self, link: Link) -> None:
        del self.present[link.number]
        self._release(link)


def _complaint(language: str, where: str) -> str:
    """What is wrong with a condition."""
    if language == "topic":
        return "body_malformed" if where else ""
    return "" if wishes.is_condition(where) else "condition_invalid"


def _fault(event: Frame) -> str:
    """What is wrong with a publication inside a good frame."""
    if not grammar.is_topic(event.topic):
        return "topic_invalid"
    if event.flags & grammar.EXPIRES and grammar.expiry_of(event.headers) is None:
        return "headers_malformed"
    return ""


def _means(who: str, session: Link) -> bool:
    """Does "*", an entity, a prefix with "*", or "role:…" mean this session?"""
    if who.startswith("role:"):
        return who[5:] in session.roles
    return session.entity.startswith(who[:-1]) if who.endswith("*") else session.entity == who
