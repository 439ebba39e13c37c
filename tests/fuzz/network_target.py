"""What the fuzzer shoots at: two brokers with every service that there is, a store and a topic directory, by hand.

In:    inputs (inputs.py).
Out:   FaultError if an input does harm; how often each reason was met.
State: the network, its canary, a few links of earlier inputs that stay, requests that must still be answered.
Not here: a live broker (live_target.py), the canary's own checks (canary.py), saving inputs that do harm (fuzz.py).

Harm is: a machine raises or notes an error; the canary is not served, or hears what it must not; somebody else hears
what is the canary's; a request of a service stays without an answer; a link ends without its reason; a table grows
beyond its limit, or something stays in it when everybody has left.
"""

from __future__ import annotations

from collections import Counter, deque
from datetime import timedelta
from functools import cache
from random import Random
from typing import Any

from heliograph.broker.commands import Listening
from heliograph.broker.config import (
    AccessConfig,
    BrokerConfig,
    LimitsConfig,
    LinkConfig,
    ListenerConfig,
    NetworkConfig,
    RuleConfig,
    TimeConfig,
)
from heliograph.discovery.brokers.config import DirectoryConfig, ResponderConfig
from heliograph.discovery.resources.config import ResourcesConfig
from heliograph.discovery.topics.config import RightsConfig, TopicDirectoryConfig
from heliograph.errors import Reason
from heliograph.machine import Effects, Outbox
from heliograph.model.identity import Identity, Role
from heliograph.node import BROKER, SERVICES, build
from heliograph.services.monitor import MonitorConfig
from heliograph.sim.clock import EPOCH_NS
from heliograph.stores.config import StoreConfig
from heliograph.trust.certificates import issue
from heliograph.trust.keyring import Keyring, Own
from heliograph.trust.seeded_hpke import SimulatedSealer
from heliograph.trust.tokens import TokenRecord
from tests.conformance import grammar
from tests.discovery.topics.stage import AUTHORITIES, AUTHORITY, NOW
from tests.fuzz.canary import MARK, Canary
from tests.fuzz.driver import MS, Driver, FaultError, Seat, Wire
from tests.fuzz.neighbours import NAME
from tests.fuzz.signed_messages import proof
from tests.fuzz.steps import Input, Knowledge, Step

BESIDE = "beside"  # the other broker
MUTE = "mute"  # a service that never answers
SING_EVERY = 3  # inputs
TABLES_EVERY = 50
STAYING_MAX = 12  # links of earlier inputs that are still there
FORGET_MS = 20_000  # after how long brokers that never existed are forgotten
ANSWER_MS = 12_000  # the longest time-out of a service, and some more
LIMITS = LimitsConfig(
    links_max=60,
    links_unproven_max=40,
    subscriptions_max=200,
    subscriptions_per_link_max=20,
    queue_bytes_max=40_000,
    hold_bytes=10_000,
    queue_frames_max=100,
    keep_alive_ms_min=1_000,
    routes_max=256,
    origins_max=60,
    gaps_max=4,
)
GUARDED = ("canary/#", "private/#")
RULES = (
    RuleConfig(effect="allow", topics=GUARDED, who=("canary",)),
    RuleConfig(effect="allow", topics=GUARDED, verbs=("subscribe",), who=("role:broker",)),  # the store
    RuleConfig(effect="deny", topics=GUARDED),
)
PORTS = {"main": 1, "token": 2, "mutual": 3, "udp": 4, "bdn": 5, "tdn": 6}
IDENTITIES = {
    "canary": Identity("canary", (Role.CLIENT,), "certificate"),
    "client": Identity("mallory", (Role.CLIENT,), "certificate"),
    "admin": Identity("root", (Role.CLIENT, Role.ADMIN), "certificate"),
    "broker": Identity("another", (Role.BROKER,), "certificate"),
}
LYING = "broker"  # whoever dials as one may publish and tell of the network what it likes


class NetworkTarget:
    """The network. Where brokers lie (``lies``), only the broker that the canary is at is asked to serve it."""

    def __init__(self, lies: bool = False, rules: tuple[RuleConfig, ...] | None = None) -> None:
        self.driver = Driver()
        self.reasons: Counter[str] = Counter()
        self.unanswered: dict[tuple[Wire, int], tuple[grammar.Frame, int]] = {}  # the request, and until when
        self._staying: deque[Wire] = deque()
        self._lies = lies
        self._shots = 0
        for name, links in ((NAME, ()), (BESIDE, (NAME,))):
            self._add(name, links, RULES if rules is None else rules)
        self.driver.pass_time(5_000 * MS)
        self.canary = Canary(self.driver, NAME, BESIDE, self._dial)
        self.canary.is_cut_off = lies
        self._at_first = self._tables()

    def _add(self, name: str, links: tuple[str, ...], rules: tuple[RuleConfig, ...]) -> None:
        config = self.driver.settings[name] = _config(name, links, rules)
        identity = Identity(name, (Role.BROKER, Role.DIRECTORY), "certificate")
        node = build(config, seed=len(name), incarnation=1, services=_services(name), keyring=_keyring(name))
        self.driver.add(node, identity)
        for listener, owner in node.listeners.items():
            seat = self.driver.seats[name, owner]
            self.driver.listen((name, PORTS[listener]), seat, listener, listener == "mutual")
        broker = self.driver.seats[name, BROKER]
        self.driver.tell(broker, Listening((f"{name}:{PORTS['main']}",)))
        self.driver.seats[name, MUTE] = mute = Seat(name, MUTE, Mute())
        self.driver.join(broker, mute)

    @property
    def knowledge(self) -> Knowledge:
        """What attackers know of the network and of the time."""
        canary = self.canary
        return Knowledge(
            wall_ms=(EPOCH_NS + self.driver.now) // MS,
            store=canary.store,
            root=canary.root,
            inbox=canary.inbox,
            store_inbox=canary.store_inbox,
            bundle=canary.bundle,
            directory=NAME,
        )

    # -- one input ----------------------------------------------------------------------------------------------------

    def shoot(self, given: Input) -> None:
        """Carry an input out, and make sure that everybody else is served."""
        wires: dict[int, Wire] = {}
        for step in given.steps:
            self.driver.pass_time(self.driver.now + MS)
            if step.verb == "dial":
                listener, _, node = step.word.partition("@")
                wires[step.peer] = self._dial(listener, node or NAME, listener)
            else:
                self._step(wires.get(step.peer), step)
            self.driver.settle()
        self._shots += 1
        if self._shots % SING_EVERY == 0:
            self.canary.check()
        for peer, wire in wires.items():
            if given.kind == "requests":
                sent = (step.data for step in given.steps if step.peer == peer and step.verb == "bytes")
                self._expect_answers(wire, b"".join(sent))
            self._listen(wire)
            self._staying.append(wire)
        while len(self._staying) > STAYING_MAX:
            self._send_away(self._staying.popleft())
        self._check_answers()
        if self._shots % TABLES_EVERY == 0:
            self.check_tables()

    def _step(self, wire: Wire | None, step: Step) -> None:
        driver = self.driver
        match step.verb:
            case "until":
                self._pass_time(int(step.word) * MS)
            case "datagram":
                source, target = (_address(text) for text in step.word.split(" "))
                driver.send_datagram(source, target, step.data)
            case _ if wire is None:
                pass
            case "bytes":
                driver.send(wire, step.data)
            case "silence":
                self._pass_time(driver.now + int(step.word) * MS)
            case "prove":
                driver.send(wire, proof(bytes(wire.heard), step.data.decode(), step.word))
            case "press":
                driver.press(wire)
            case "leave":
                driver.leave(wire)

    def _dial(self, name: str, node: str, who: str) -> Wire:
        identity = IDENTITIES.get(who)
        wire = self.driver.dial(name, (node, PORTS["mutual" if identity is not None else who]), identity)
        self.driver.settle()
        return wire

    def _send_away(self, wire: Wire) -> None:
        self.driver.leave(wire)
        self.driver.settle()
        self._listen(wire)
        for request in [request for request in self.unanswered if request[0] is wire]:
            del self.unanswered[request]

    def _pass_time(self, until: int) -> None:
        """Time passes; the canary goes on singing, so that it does not count as silent."""
        while self.driver.now < until:
            self.driver.pass_time(min(until, self.driver.now + 1_000 * MS))
            self.canary.check()

    # -- what an attacker heard ---------------------------------------------------------------------------------------

    def _listen(self, wire: Wire) -> None:
        """What was said on a link is well-formed, not the canary's, and its last word is why it ended."""
        heard = bytes(wire.heard)
        wire.heard.clear()
        if MARK in heard and wire.name != LYING:
            raise FaultError(f"{wire.name} heard what is the canary's: {heard!r}")
        said = list(grammar.whole_frames(heard))
        for frame in said:
            if reason := reason_in(frame):
                self.reasons[reason] += 1
            if frame.kind == grammar.SERVICE:
                self.unanswered.pop((wire, frame.sequence), None)
        if wire.ended is not None:
            for request in [request for request in self.unanswered if request[0] is wire]:
                del self.unanswered[request]
            is_directory = wire.end.seat.name != BROKER  # they hang up without a word
            last = reason_in(said[-1]) if said else ""
            if not is_directory and (not said or said[-1].kind != grammar.GOODBYE or last != wire.ended.word):
                raise FaultError(f"{wire.name} ended with {wire.ended.word}, but its last word was {said[-1:]}")
            wire.ended = None

    def _expect_answers(self, wire: Wire, sent: bytes) -> None:
        """Every request that was sent on a link that is still open must be answered, or refused, in time."""
        if wire.is_open:
            until = self.driver.now + ANSWER_MS * MS
            for frame in grammar.whole_frames(sent):
                if frame.kind == grammar.SERVICE and frame.topic != MUTE.encode():
                    self.unanswered[wire, frame.sequence] = (frame, until)

    def _check_answers(self) -> None:
        for (wire, _), (frame, until) in self.unanswered.items():
            if until <= self.driver.now:
                raise FaultError(f"{frame.topic.decode()} never answered {wire.name}: {frame.payload!r}")

    # -- tables -------------------------------------------------------------------------------------------------------

    def check_tables(self) -> None:
        """No table is longer than its limit."""
        for name in (NAME, BESIDE):
            overview = self.driver.machine(name).report("overview")
            bounds = {
                "links": LIMITS.links_max,
                "subscriptions": LIMITS.subscriptions_max,
                "origins": LIMITS.origins_max,
                "routes_cached": LIMITS.routes_max * 3,
                "backlog_bytes": LIMITS.links_max * LIMITS.queue_bytes_max,
                "backlog_frames": LIMITS.links_max * LIMITS.queue_frames_max,
            }
            over = {table: overview[table] for table, bound in bounds.items() if overview[table] > bound}
            if over:
                raise FaultError(f"{name}: tables over their bounds: {over} > {bounds}")
            if overview["neighbours"] != 1 and not self._lies:
                raise FaultError(f"{name} has {overview['neighbours']} neighbours")

    def _tables(self) -> dict[str, Any]:
        """What nothing of an attacker may stay in."""
        found = {}
        for name, other in ((NAME, BESIDE), (BESIDE, NAME)):
            overview = self.driver.machine(name).report("overview")
            overview["links"] -= self.driver.machine(other, "resources").report("overview")[
                "direct_links"
            ]  # these stay
            tables = ("links", "subscriptions", "backlog_bytes", "backlog_frames", "neighbours", "rights")
            found |= {f"{name} {table}": overview[table] for table in tables}
            for service, table in (("stores", "under_way"), ("stores", "waiting"), ("admin", "under_way")):
                found[f"{name} {service} {table}"] = self.driver.machine(name, service).report("overview")[table]
        found["searches"] = self.driver.machine(NAME, "tdn").report("overview")["searches_under_way"]
        return found

    def finish(self) -> None:
        """Everybody leaves but the canary; requests are answered, and nothing of attackers stays behind."""
        self._pass_time(self.driver.now + ANSWER_MS * MS)
        for wire in self._staying:
            self._listen(wire)
        self._check_answers()
        while self._staying:
            self._send_away(self._staying.popleft())
        self._pass_time(self.driver.now + ANSWER_MS * MS)
        if self._lies:
            self._pass_time(self.driver.now + 2 * FORGET_MS * MS)
            self.canary.lies_are_forgotten()
        else:
            self.canary.check_store()
        self.canary.check_answers()
        self.check_tables()
        left = self._tables()
        if left != self._at_first:
            raise FaultError(f"something stayed behind: {left}, at first {self._at_first}")
        for name in (NAME, BESIDE):
            overview = self.driver.machine(name).report("overview")
            for quiet in ("publication_expired", "duplicate"):
                self.reasons[quiet] += overview["refused"].get(quiet, 0)
            self.reasons["duplicate"] += overview["duplicates"]
            for service in (each.name for each in SERVICES if (name, each.name) in self.driver.seats):
                self._count(self.driver.machine(name, service).report("overview"))

    def _count(self, overview: dict[str, Any]) -> None:
        """What services refused without telling anybody."""
        for table in ("counts", "refused"):
            for word, count in (overview.get(table) or {}).items():
                if word in WORDS:
                    self.reasons[word] += count


WORDS = frozenset(reason.word for reason in Reason)


class Mute:
    """A service that never answers."""

    def __init__(self) -> None:
        self._outbox = Outbox()

    def take(self) -> Effects:
        """Nothing, ever."""
        return self._outbox.empty(None)

    def __getattr__(self, name: str) -> Any:
        if name == "shortcut":
            raise AttributeError(name)
        return lambda *details: None


def reason_in(frame: grammar.Frame) -> str:
    """The word of a frame that says no; empty for all others."""
    says_no = frame.kind in (grammar.GOODBYE, grammar.REFUSED) or (frame.kind == grammar.SERVICE and frame.flags & 2)
    return str(grammar.read_json(frame.payload, "reason", "code")["reason"]) if says_no else ""


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _config(name: str, links: tuple[str, ...], rules: tuple[RuleConfig, ...]) -> BrokerConfig:
    listeners = (
        ListenerConfig(name="main", host="127.0.0.1", port=PORTS["main"]),
        ListenerConfig(name="token", host="127.0.0.1", port=PORTS["token"], auth="token"),
        ListenerConfig(name="mutual", host="127.0.0.1", port=PORTS["mutual"], secure=True, auth="certificate"),
    )
    kept = tuple(LinkConfig(host=other, port=PORTS["main"]) for other in links)
    network = NetworkConfig(key=b"k" * 32, links=kept, forget_ms=FORGET_MS)
    config = BrokerConfig(
        name=name,
        listeners=listeners,
        limits=LIMITS,
        access=AccessConfig(rules=rules),
        network=network,
        time=TimeConfig(servers=("192.0.2.123",)),
        tokens=(TokenRecord("tester", (Role.CLIENT,), b"salt", b"digest"),),
    )
    assert config.problems() == []
    return config


def _services(name: str) -> list[object]:
    """Every service that there is at one broker; the other has no store and no topic directory."""
    udp, bdn, tdn = PORTS["udp"], PORTS["bdn"], PORTS["tdn"]
    every: list[object] = [
        ResponderConfig(host=name, port=udp, directories=(f"{NAME}:{bdn}",)),
        DirectoryConfig(enabled=True, host=name, port=bdn),
        ResourcesConfig(),
        RightsConfig(),
        MonitorConfig(),
    ]
    if name == NAME:
        every.append(StoreConfig(enabled=True, patterns=("canary/#", "a/#", "kept/#"), channels_max=3, names_max=32))
        every.append(TopicDirectoryConfig(enabled=True, host=name, port=tdn, searches_max=16, watches_max=16))
    return every


@cache
def _pair(name: str) -> Any:
    draw = Random(name).randbytes
    return issue(AUTHORITY, name, [Role.BROKER, Role.DIRECTORY], [], NOW - timedelta(hours=1), 90, draw=draw)


def _keyring(name: str) -> Keyring:
    own = Own.from_pem(_pair(name).certificate, _pair(name).key)
    return Keyring(AUTHORITIES, own, sealer=SimulatedSealer(Random(name).randbytes))
