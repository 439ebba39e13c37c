"""What the fuzzer shoots at: a broker machine with its services, driven by hand.

In:    inputs (inputs.py).
Out:   FaultError if an input does harm; how often each reason was met.
State: one broker, a canary (a healthy publisher and subscriber), and a few links of earlier inputs that stay.
Not here: a live broker (live_target.py), making inputs, saving those that do harm (fuzz.py).
"""

from __future__ import annotations

from collections import Counter, deque

from heliograph.broker.broker import Broker
from heliograph.broker.config import AccessConfig, BrokerConfig, LimitsConfig, ListenerConfig, RuleConfig
from heliograph.broker.credentials import CheckToken
from heliograph.errors import Reason
from heliograph.machine import Effects, Peer
from heliograph.model.identity import Identity, Role
from heliograph.services.admin import Admin
from heliograph.trust.tokens import TokenRecord
from tests.conformance import grammar
from tests.conformance.grammar import put_together
from tests.fuzz.inputs import Input, Step
from tests.fuzz.neighbours import NAME
from tests.fuzz.valid import TOKEN, event, hello, subscribe

MS = 1_000_000
STAYING_MAX = 12  # links of earlier inputs that are still there
LIMITS = LimitsConfig(
    links_max=40,
    links_unproven_max=30,
    subscriptions_max=200,
    subscriptions_per_link_max=20,
    queue_bytes_max=40_000,
    hold_bytes=10_000,
    queue_frames_max=100,
    keep_alive_ms_min=1_000,
    routes_max=256,
    origins_max=30,
    gaps_max=4,
)
RULES = (
    RuleConfig(effect="allow", topics=("canary/#",), who=("canary",)),
    RuleConfig(effect="deny", topics=("canary/#", "private/#")),
)
CANARY, LISTENING = b"the canary publishes", b"the canary listens"
PUBLISHER, SUBSCRIBER = 1, 2
PIPES = {3: "admin", 4: "mute"}
IDENTITIES = {
    "admin": Identity("root", (Role.CLIENT, Role.ADMIN), "certificate"),
    "broker": Identity("another", (Role.BROKER,), "certificate"),
}


class FaultError(Exception):
    """The broker did what it must not do."""


class MachineTarget:
    """A broker and its admin service, driven by hand; time is a number."""

    def __init__(self) -> None:
        self.broker = Broker(_config(), seed=1, incarnation=1)
        self.admin = Admin()
        self.now = 0
        self.reasons: Counter[str] = Counter()
        self._links = 10
        self._heard: dict[int, bytes] = {}
        self._hangups: dict[int, str] = {}
        self._attached: dict[int, None] = {}
        self._staying: deque[int] = deque()
        self._sung = 0
        self._wake_at: int | None = None
        self.broker.clock(1_700_000_000 * 1_000 * MS, 0)
        self.admin.attach(1, Peer("pipe", "broker"), 0)
        for pipe, name in PIPES.items():
            self.broker.attach(pipe, Peer("pipe", name), 0)
        for link, secret, more in ((PUBLISHER, CANARY, b""), (SUBSCRIBER, LISTENING, subscribe(1, "canary/+"))):
            self._attach(link, Peer("tls", "192.0.2.1:1", "main", Identity("canary", (Role.CLIENT,), "certificate")))
            self._receive(link, hello(secret) + more)
        self._heard[SUBSCRIBER] = b""

    def shoot(self, given: Input) -> None:
        """Carry an input out, and make sure that everybody else is served."""
        links: dict[int, int] = {}
        for step in given.steps:
            self.now += MS
            if step.verb == "dial":
                links[step.peer] = self._dial(step.word)
            elif links.get(step.peer) in self._attached:
                self._step(links[step.peer], step)
            self.check_canary()
        for link in links.values():
            self._check_words(link)
            if link in self._attached:
                self._staying.append(link)
        while len(self._staying) > STAYING_MAX:
            self._detach(self._staying.popleft(), Reason.CLOSED)

    def _step(self, link: int, step: Step) -> None:
        match step.verb:
            case "bytes":
                self._receive(link, step.data)
            case "silence":
                self._pass_time(int(step.word) * MS)
            case "press":
                self.broker.press(link, True, self.now)
                self._take()
            case "leave":
                self._detach(link, Reason.CLOSED)

    def check_canary(self) -> None:
        """A healthy client publishes, another hears it, and nothing else."""
        self._sung += 1
        song = event(CANARY, f"canary/{self._sung % 7}", self._sung, b"song %d" % self._sung)
        self._receive(PUBLISHER, song)
        self._receive(SUBSCRIBER, put_together(grammar.PING, self._sung))
        heard = [frame.kind for frame in grammar.whole_frames(self._heard[SUBSCRIBER]) if frame.kind != grammar.PING]
        songs = [
            song.raw
            for frame in grammar.whole_frames(self._heard[SUBSCRIBER])
            if frame.kind == grammar.DELIVERY
            for song in grammar.whole_frames(frame.payload)
        ]
        self._heard[SUBSCRIBER] = self._heard[PUBLISHER] = b""
        if songs != [song] or heard != [grammar.DELIVERY, grammar.PONG]:
            raise FaultError(f"the canary published {song!r} and heard {songs} in frames of kinds {heard}")

    def check_tables(self) -> None:
        """No table is longer than its limit."""
        overview = self.broker.report("overview")
        links = len(self._attached)
        bounds = {
            "links": links,
            "subscriptions": LIMITS.subscriptions_max,
            "origins": LIMITS.origins_max,
            "routes_cached": LIMITS.routes_max * 3,
            "backlog_bytes": links * LIMITS.queue_bytes_max,
            "backlog_frames": links * LIMITS.queue_frames_max,
        }
        over = {name: overview[name] for name, bound in bounds.items() if overview[name] > bound}
        if over:
            raise FaultError(f"tables over their bounds: {over} > {bounds}")

    def finish(self) -> None:
        """Everybody leaves but the canary; nothing of them may stay behind."""
        for link in [link for link in self._attached if link not in (PUBLISHER, SUBSCRIBER)]:
            self._detach(link, Reason.CLOSED)
        self._pass_time(10 * MS)
        overview = self.broker.report("overview")
        left = {name: overview[name] for name in ("links", "subscriptions", "backlog_bytes", "backlog_frames")}
        if left != {"links": 2, "subscriptions": 1, "backlog_bytes": 0, "backlog_frames": 0}:
            raise FaultError(f"something stayed behind: {left}")
        for quiet in ("publication_expired", "duplicate"):
            self.reasons[quiet] += overview["refused"].get(quiet, 0)
        self.reasons["duplicate"] += overview["duplicates"]

    # -- driving ------------------------------------------------------------------------------------------------

    def _dial(self, listener: str) -> int:
        self._links += 1
        identity = IDENTITIES.get(listener)
        place = listener if identity is None else "mutual"
        self._attach(self._links, Peer("tcp", "192.0.2.1:2", place, identity))
        return self._links

    def _attach(self, link: int, peer: Peer) -> None:
        self._heard[link] = b""
        self._attached[link] = None
        self.broker.attach(link, peer, self.now)
        self._take()

    def _receive(self, link: int, data: bytes) -> None:
        written = self.broker.shortcut(link, data, self.now)
        if written is None:
            self.broker.receive(link, data, self.now)
            self._take()
        else:
            self._write(written[0], [written[1]])

    def _detach(self, link: int, reason: Reason) -> None:
        if link in self._attached:
            del self._attached[link]
            self.broker.detach(link, reason, self.now)
            self._take()
            self._check_words(link)
            del self._heard[link]

    def _pass_time(self, span: int) -> None:
        """Time passes for all; the canary goes on singing so that it does not count as silent."""
        until = self.now + span
        while self.now < until:
            self.now = min(until, self.now + 500 * MS)
            self.check_canary()
        self._take()

    def _take(self) -> None:
        for _ in range(100):
            effects = self.broker.take()
            self._carry_out(effects)
            due = effects.wake_at is not None and effects.wake_at <= self.now
            if due:
                self.broker.wake(self.now)
            if not (due or effects.writes or effects.hangups or effects.jobs):
                return
        raise FaultError("the broker wants something without end")

    def _carry_out(self, effects: Effects) -> None:
        for link, parts in effects.writes:
            self._write(link, parts)
        for ticket, job in effects.jobs:
            if not isinstance(job, CheckToken):
                raise FaultError(f"an unexpected job: {job}")
            self.broker.done(ticket, job.token == TOKEN, self.now)
        for link, reason in effects.hangups:
            if link in (PUBLISHER, SUBSCRIBER) or link in PIPES:
                raise FaultError(f"link {link} was hung up ({reason.word}) for what somebody else did")
            self._hangups[link] = reason.word
            self._detach(link, reason)

    def _write(self, link: int, parts: list[bytes]) -> None:
        if link in PIPES:
            self._ask_service(link, parts)
        elif link in self._heard:
            self._heard[link] += b"".join(parts)
        else:
            raise FaultError(f"a write to link {link}, which is gone")

    def _ask_service(self, pipe: int, parts: list[bytes]) -> None:
        if PIPES[pipe] != "admin":
            return  # the mute service never answers
        for part in parts:
            self.admin.receive(1, part, self.now)
        for _, answers in self.admin.take().writes:
            for answer in answers:
                self.broker.receive(pipe, answer, self.now)

    def _check_words(self, link: int) -> None:
        """What was said on a link is well-formed; its last word is why it ended."""
        said = list(grammar.whole_frames(self._heard.get(link, b"")))
        for frame in said:
            reason = reason_in(frame)
            if reason:
                self.reasons[reason] += 1
        ended = self._hangups.pop(link, None)
        if ended is not None and (not said or said[-1].kind != grammar.GOODBYE or reason_in(said[-1]) != ended):
            raise FaultError(f"link {link} ended with {ended}, but its last frame was {said[-1:] or 'nothing'}")
        if link in self._heard:
            self._heard[link] = b""


def reason_in(frame: grammar.Frame) -> str:
    """The word of a frame that says no; empty for all others."""
    says_no = frame.kind in (grammar.GOODBYE, grammar.REFUSED) or (frame.kind == grammar.SERVICE and frame.flags & 2)
    return str(grammar.read_json(frame.payload, "reason", "code")["reason"]) if says_no else ""


def _config() -> BrokerConfig:
    listeners = (
        ListenerConfig(name="main", host="127.0.0.1", port=0),
        ListenerConfig(name="token", host="127.0.0.1", port=0, auth="token"),
        ListenerConfig(name="mutual", host="127.0.0.1", port=0, secure=True, auth="certificate"),
    )
    tokens = (TokenRecord("tester", (Role.CLIENT,), b"salt", b"digest"),)
    access = AccessConfig(rules=RULES)
    config = BrokerConfig(name=NAME, listeners=listeners, limits=LIMITS, access=access, tokens=tokens)
    assert config.problems() == []
    return config
