"""A session and a scripted broker that talks to it in bytes: the harness of the tests in this folder.

In:    what the program tells, what the broker says, time.
Out:   what the session wrote, dialled, held and hung up, and what it noted.
State: one session machine, the clock, and everything the session did.
Not here: any judgement (the tests), the real broker (test_live.py).
"""

from __future__ import annotations

import json
from typing import Any

from heliograph.client.commands import Outcome
from heliograph.client.config import ClientConfig, Target
from heliograph.client.session import Session
from heliograph.errors import Reason
from heliograph.machine import Dial, Machine, Peer
from heliograph.notes import Note
from heliograph.wire.frames import Frame, Kind, control, delivery, event

MS = 1_000_000
SECRET = bytes(range(16))
HERE = Target(host="127.0.0.1", port=4717)
THERE = Target(host="127.0.0.2", port=4717)
WALL_NS = 1_700_000_000_000_000_000
STRANGER = 77  # the origin of another publisher


def frames_in(data: bytes) -> list[Frame]:
    """The whole frames in these bytes."""
    found = []
    while data:
        end = 4 + int.from_bytes(data[:4], "little")
        assert end <= len(data)
        found.append(Frame(data[:end]))
        data = data[end:]
    return found


def body_of(frame: Frame) -> dict[str, Any]:
    return json.loads(frame.payload)


def packed(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def a_delivery(numbers: list[int], events: list[bytes], lost: int = 0) -> bytes:
    run = b"".join(events)
    return delivery(packed(*numbers), len(run), lost) + run


def an_event(sequence: int, topic: str = "a", payload: bytes = b"x", origin: int = STRANGER) -> bytes:
    return event(topic.encode(), payload, origin, sequence)


class Script:
    """A session, driven step by step. Every input is followed by a take."""

    def __init__(self, *targets: Target, clock: bool = True, **settings: Any) -> None:
        config = ClientConfig(targets=targets or (HERE,), **settings)
        self.session = Session(config, secret=SECRET, seed=1)
        self.machine: Machine = self.session
        self.now = 1
        self.link = 0  # the newest
        self.written: dict[int, list[Frame]] = {}  # per link, since the last `heard`
        self.dials: list[tuple[int, Dial]] = []
        self.hangups: list[tuple[int, Reason]] = []
        self.held: dict[int, bool] = {}
        self.notes: list[Note] = []
        self.wake_at: int | None = None
        self.stopped = False
        self._request = 0
        if clock:
            self.machine.clock(WALL_NS, self.now)
        self.take()

    # -- driving --------------------------------------------------------------------------------------------------

    def take(self) -> None:
        effects = self.machine.take()
        for link, frames in effects.writes:
            assert 0 < link <= self.link
            assert all(type(frame) is bytes for frame in frames)
            self.written.setdefault(link, []).extend(frames_in(b"".join(frames)))
        self.dials += effects.dials
        self.hangups += effects.hangups
        self.held.update(effects.holds)
        self.notes += effects.notes
        self.wake_at = effects.wake_at
        self.stopped = effects.stop

    def pass_ms(self, ms: int) -> None:
        """Let time pass, waking the session whenever it asks for it."""
        until = self.now + ms * MS
        while self.wake_at is not None and self.wake_at <= until:
            self.now = max(self.now, self.wake_at)
            self.machine.wake(self.now)
            self.take()
        self.now = until

    def dial(self) -> Dial:
        """Wait until the session dials; what it wants."""
        while not self.dials:
            assert self.wake_at is not None
            self.now = max(self.now, self.wake_at)
            self.machine.wake(self.now)
            self.take()
        return self.dials[0][1]

    def attach(self) -> list[Frame]:
        """Let the dial succeed; what the session says first."""
        dial = self.dial()
        ticket = self.dials.pop(0)[0]
        self.link += 1
        self.machine.attach(self.link, Peer("tcp", f"{dial.host}:{dial.port}", ticket=ticket), self.now)
        self.take()
        return self.heard()

    def refuse_dial(self, reason: Reason = Reason.DIAL_FAILED) -> None:
        self.dial()
        ticket = self.dials.pop(0)[0]
        self.machine.failed(ticket, reason, self.now)
        self.take()

    def connect(self, seen: int | None = None, **welcome: Any) -> list[Frame]:
        """Dial, attach and be welcomed; what the session says after the WELCOME."""
        self.attach()
        self.welcome(seen, **welcome)
        return self.heard()

    def inbox(self, broker: int = 1) -> str:
        """The session's inbox at this broker."""
        return f"Inbox/{broker:016x}/{self.session.origin:016x}"

    def welcome(self, seen: int | str | None = None, **more: Any) -> None:
        body = {
            "version": 1,
            "broker": "broker",
            "incarnation": 1,
            "origin": f"{self.session.origin:016x}",
            "entity": "anonymous",
            "roles": ["client"],
            "features": [],
            "limits": {"payload_bytes_max": 1 << 20},
            "keep_alive_ms": 20_000,
            "inbox": self.inbox(),
            "seen": f"{seen:016x}" if isinstance(seen, int) else seen or "",
        } | more
        self.say_json(Kind.WELCOME, 0, body)

    def say(self, data: bytes, link: int | None = None) -> None:
        self.machine.receive(link or self.link, data, self.now)
        self.take()

    def say_json(self, kind: Kind, number: int, body: dict[str, Any], link: int | None = None) -> None:
        self.say(control(kind, number, json.dumps(body).encode()), link)

    def confirm(self, frame: Frame, link: int | None = None) -> None:
        self.say(control(Kind.CONFIRMED, frame.sequence), link)

    def refuse(self, frame: Frame | None, reason: Reason, link: int | None = None, **more: Any) -> None:
        """Refuse what was asked for, or without it a publication."""
        body = {"reason": reason.word, "code": int(reason), "text": "because", **more}
        self.say_json(Kind.REFUSED, 0 if frame is None else frame.sequence, body, link)

    def pong(self, frame: Frame, link: int | None = None) -> None:
        self.say(control(Kind.PONG, frame.sequence), link)

    def goodbye(self, reason: Reason, grace_ms: int = 0, others: tuple[str, ...] = ()) -> None:
        body = {"reason": reason.word, "code": int(reason), "text": "because", "grace_ms": grace_ms}
        self.say_json(Kind.GOODBYE, 0, body | {"others": others})

    def lose(self, reason: Reason = Reason.RESET, link: int | None = None) -> None:
        self.machine.detach(link or self.link, reason, self.now)
        self.take()

    def tell(self, command: Any) -> None:
        self.machine.tell(command, self.now)
        self.take()

    # -- looking --------------------------------------------------------------------------------------------------

    def heard(self, link: int | None = None) -> list[Frame]:
        """What the session wrote to a link, the newest unless told otherwise, since this was last asked."""
        return self.written.pop(link or self.link, [])

    def heard_of(self, kind: Kind, link: int | None = None) -> list[Frame]:
        return [frame for frame in self.heard(link) if frame.kind == kind]

    def number(self) -> int:
        """A request number that was not used before."""
        self._request += 1
        return self._request

    def outcomes(self) -> dict[int, Outcome]:
        return {outcome.request: outcome for outcome in self.session.collect()}

    def outcome(self, request: int) -> Outcome:
        return self.outcomes()[request]

    def overview(self) -> dict[str, Any]:
        return self.machine.report("overview")
