"""Sessions: a pair of brokers, real and oracle, that both go through the same steps of the same clients.

In:    steps (steps.py), any split of the streams, press and take at any moment.
Out:   Pair: what each broker said on each link, as lists of Said.
State: the two brokers, the links of each client, the bytes each has not sent yet.
Not here: what is claimed about the outcome (test_conformance.py), the oracle's rules (oracle.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from heliograph.broker.broker import Broker
from heliograph.broker.config import AccessConfig, BrokerConfig, LimitsConfig, ListenerConfig, RuleConfig
from heliograph.errors import Reason
from heliograph.machine import Effects, Peer
from heliograph.model.identity import Identity, Role
from tests.conformance import grammar
from tests.conformance.grammar import Frame, put_together
from tests.conformance.oracle import Oracle, Said, Settings
from tests.conformance.steps import (
    CLIENTS,
    Ask,
    Break,
    Dial,
    Flush,
    Leave,
    Press,
    Publish,
    Slowly,
    Step,
    Subscribe,
    Take,
    Unsubscribe,
    body,
    broken,
    origin_of,
    secret_of,
)

MS = 1_000_000
AT_ONCE_MAX = 8  # publications that a broker surely handles in one go


@dataclass
class Client:
    """What the test knows of one client: its present link and the bytes that wait to be sent on it."""

    link: int | None = None
    outgoing: bytes = b""
    held: bool = False


@dataclass
class Pair:
    """The real broker and the oracle, fed alike."""

    settings: Settings
    limits: LimitsConfig = field(default_factory=LimitsConfig)

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.settings)
        self.broker = Broker(config_of(self.settings, self.limits), seed=0, incarnation=1)
        self.clients = {name: Client() for name in CLIENTS}
        self.now = 0
        self.links = 0
        self.requests = 0
        self.bytes: dict[int, bytes] = {}  # what the real broker wrote on each link
        self.hangups: dict[int, str] = {}
        self.problems: list[str] = []
        self.short = 0  # reads that took the shortcut
        self.attached: set[int] = set()
        self.vanished: set[int] = set()  # links that went away by themselves; what was meant for them may be lost
        self.broker.clock(self.settings.wall_us * 1_000, 0)

    # -- steps ------------------------------------------------------------------------------------------------

    def go(self, step: Step) -> None:
        self.now += MS
        if isinstance(step, Take):
            self.take()
            return
        sizes: tuple[int, ...] | None = None  # all at once
        if isinstance(step, Slowly):
            sizes = step.sizes
            step = step.step
        client = self.clients[step.client]
        if isinstance(step, Dial):
            self._dial(step, client)
        elif client.link is None:
            return
        elif isinstance(step, Press):
            self.press(client.link, step.pressed)
        elif isinstance(step, Leave) and not step.politely:
            self._vanish(client)
        else:
            client.outgoing += b"".join(self._frames(step))
        for size in (len(client.outgoing),) if sizes is None else sizes:
            self.send(client, size)
        if isinstance(step, Publish) and step.count > AT_ONCE_MAX:
            self._catch_up(step.count)

    def _catch_up(self, count: int) -> None:
        """The broker may work a long read off in slices; the oracle did it at once. Nobody else speaks in between."""
        for _ in range(count):
            effects = self.take()
            if effects.wake_at is None or effects.wake_at > self.now:
                return

    def _dial(self, step: Dial, client: Client) -> None:
        self.links += 1
        client.link, client.outgoing, client.held = self.links, b"", False
        roles = CLIENTS[step.client]
        identity = Identity(step.client, tuple(Role(role) for role in roles), "certificate")
        self.broker.attach(self.links, Peer("tls", "192.0.2.1:5", "main", identity), self.now)
        self.oracle.attach(self.links, step.client, roles)
        self.attached.add(self.links)
        self.bytes[self.links] = b""
        fields = {"versions": [1], "secret": secret_of(step.client).hex(), "hold": step.hold, **dict(step.body)}
        client.outgoing = put_together(grammar.HELLO, 0, body(**fields))

    def _frames(self, step: Step) -> Iterator[bytes]:
        self.requests += 1
        match step:
            case Subscribe(_, number, pattern, policy, echo, language, where):
                asked = {"where": where} if where else {}
                fields = body(number=number, filter=pattern, policy=policy, echo=echo, language=language, **asked)
                yield put_together(grammar.SUBSCRIBE, self.requests, fields)
            case Unsubscribe(_, number):
                yield put_together(grammar.UNSUBSCRIBE, self.requests, body(number=number))
            case Flush(_, number):
                yield put_together(grammar.PING, number)
            case Ask(_, service):
                yield put_together(grammar.SERVICE, self.requests, b"{}", service.encode())
            case Break(client, how):
                yield broken(client, how)
            case Leave():
                yield put_together(grammar.GOODBYE, 0, body(reason="goodbye", code=400))
            case Publish(client, topic, first, count, expires_s, text):
                headers, flags = text.encode(), 0
                if expires_s is not None:
                    headers, flags = body(**{"$x": self.settings.wall_us + expires_s * 1_000_000}), grammar.EXPIRES
                for sequence in range(first, first + count):
                    payload = f"request {self.requests}".encode()
                    yield put_together(
                        grammar.EVENT, sequence, payload, topic.encode(), headers, origin_of(client), flags
                    )

    # -- inputs, to both --------------------------------------------------------------------------------------

    def send(self, client: Client, size: int) -> None:
        if client.held or client.link is None:
            return
        data, client.outgoing = client.outgoing[:size], client.outgoing[size:]
        if data:
            self._hand(client.link, data)
            self.oracle.receive(client.link, data)

    def _hand(self, link: int, data: bytes) -> None:
        """As a driver does: by the shortcut, or the long way."""
        written = self.broker.shortcut(link, data, self.now)
        if written is None:
            self.broker.receive(link, data, self.now)
        else:
            self.short += 1
            self.bytes[written[0]] += written[1]

    def press(self, link: int, pressed: bool) -> None:
        self.broker.press(link, pressed, self.now)
        self.oracle.press(link, pressed)

    def _vanish(self, client: Client) -> None:
        assert client.link is not None
        if client.link in self.attached:
            self.attached.remove(client.link)
            self.vanished.add(client.link)
            self.broker.detach(client.link, Reason.RESET, self.now)
            self.oracle.detach(client.link)
        client.link = None

    # -- outputs of the real broker ---------------------------------------------------------------------------

    def take(self) -> Effects:
        effects = self.broker.take()
        for link, parts in effects.writes:
            assert link in self.attached or link in self.bytes, "a write to a link that never was"
            if link in self.attached:
                self.bytes[link] += b"".join(parts)
        for link, held in effects.holds:
            for client in self.clients.values():
                if client.link == link:
                    client.held = held
        busy = effects.wake_at is not None and effects.wake_at <= self.now
        if not busy:  # a link may be held as well while what it sent is worked off
            self._compare_holds()
        for link, reason in effects.hangups:
            self.hangups[link] = reason.word
            if link in self.attached:
                self.attached.remove(link)
                self.broker.detach(link, reason, self.now)
        if busy:
            self.broker.wake(self.now)
        return effects

    def _compare_holds(self) -> None:
        for name, client in self.clients.items():
            model = self.oracle.present.get(client.link or 0)
            if model is not None and client.held != bool(model.waits_for):
                self.problems.append(f"{name} {'is' if client.held else 'is not'} held, and should be the opposite")

    def finish(self) -> None:
        """Let everything that is still on its way arrive."""
        for link in sorted(self.attached):
            self.press(link, pressed=False)
        for _ in range(3):
            self.take()
            for client in self.clients.values():
                self.send(client, len(client.outgoing))
        self.take()

    def real(self, link: int) -> list[Said]:
        """What the real broker said on a link, one publication at a time."""
        return [said for frame in grammar.whole_frames(self.bytes[link]) for said in _heard(frame)]


def _heard(frame: Frame) -> Iterator[Said]:
    match frame.kind:
        case grammar.DELIVERY:
            numbers = tuple(
                int.from_bytes(frame.headers[at : at + 4], "little") for at in range(0, len(frame.headers), 4)
            )
            for event in grammar.whole_frames(frame.payload):
                yield Said("event", frame.origin, numbers=numbers, raw=event.raw)
        case grammar.WELCOME:
            welcome = grammar.read_json(frame.payload)
            yield Said("welcome", int(welcome.get("slow", False)), subject=welcome.get("seen", ""))
        case grammar.PING:
            yield Said("ping", frame.sequence)
        case grammar.PONG:
            yield Said("pong", frame.sequence)
        case grammar.CONFIRMED:
            yield Said("confirmed", frame.sequence)
        case grammar.REFUSED:
            refusal = grammar.read_json(frame.payload)
            yield Said("refused", frame.sequence, refusal["reason"], refusal.get("subject", ""))
        case grammar.GOODBYE:
            yield Said("goodbye", reason=grammar.read_json(frame.payload)["reason"])
        case grammar.SERVICE:
            assert frame.flags == 3, "no service is there to answer"
            yield Said("service", frame.sequence, grammar.read_json(frame.payload)["reason"], frame.topic.decode())
        case _:
            raise AssertionError(f"a client heard a frame of kind {frame.kind}")


def config_of(settings: Settings, limits: LimitsConfig) -> BrokerConfig:
    """The real broker's form of the oracle's settings."""
    rules = tuple(
        RuleConfig(effect=rule.effect, verbs=rule.verbs, topics=rule.topics, who=rule.who) for rule in settings.rules
    )
    config = BrokerConfig(
        listeners=(ListenerConfig(secure=True),),
        limits=limits,
        access=AccessConfig(rules=rules, default=settings.default),
    )
    assert config.problems() == []
    return config
