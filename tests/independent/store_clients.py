"""Clients of stores, written from docs/reference/protocol.md: publishers that want acknowledgements, durable readers.

In:    the ports of brokers, any of which may be gone at any time; secrets, topics, counts.
Out:   frames; what was acknowledged by which store, and what each reader took, at which position.
State: what must outlive a link: publications without an acknowledgement, positions taken.
Not here: processes and their faults (store_runs.py), what is right (store_oracle.py).

Each of them goes to a broker drawn at random, and to another one when its link ends or nothing moves.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from tests.independent.client import Client, frame_ends
from tests.wire.stdlib_client import ANSWER, EVENT, HEAD, REFUSAL, SERVICE, RefusedError, origin_of, pack

STORED = 5
REPEAT = 32
ACKNOWLEDGEMENT, NEWS = 4, 8
REQUEST_S = 6.0  # a broker that was stopped does not answer
STILL_S = 3.0  # without progress, a publisher attaches again, and a reader asks again
PAUSE_S = 0.1
ATTEMPTS = 10  # of reading a whole log
WINDOW = 200  # publications without an acknowledgement
READ_WINDOW = 300
CREDIT_EVERY = 100
LINK_ERRORS = (OSError, TimeoutError, AssertionError)  # Client asserts that its link is there


class Stored(NamedTuple):
    flags: int
    store: int
    sequence: int
    headers: bytes
    payload: bytes


class StoreLink(Client):
    """A link whose requests to the service `stores` are answered, and that passes on what stores send."""

    def __init__(self, name: str, secret: bytes, took: Callable[[Stored], None]) -> None:
        super().__init__(name, secret)
        self._took = took
        self._requests = 0

    async def request(self, **body: Any) -> dict[str, Any]:
        self._requests += 1
        raw = pack(SERVICE, topic=b"stores", sequence=self._requests, payload=json.dumps(body).encode())
        async with asyncio.timeout(REQUEST_S):
            answer = json.loads(await self._ask(raw, SERVICE, self._requests))
        if "reason" in answer:
            raise RefusedError(answer)
        return dict(answer)

    async def store_for(self, topic: str) -> str:
        """The id of the store that serves a topic, once the broker knows one."""
        while not (found := (await self.request(do="find", topic=topic))["stores"]):
            await asyncio.sleep(PAUSE_S)
        return str(found[0]["store"])

    def _take(self, buffer: bytes, begin: int, end: int) -> None:
        _, kind, flags, topic_length, origin, sequence, header_length = HEAD.unpack_from(buffer, begin)
        headers = begin + HEAD.size + topic_length
        payload = headers + header_length
        if kind == STORED:
            self._took(Stored(flags, origin, sequence, buffer[headers:payload], buffer[payload:end]))
        elif kind == SERVICE:
            assert flags & ANSWER
            assert bool(flags & REFUSAL) == ("reason" in json.loads(buffer[payload:end]))
            waiting = self._asked.get((SERVICE, sequence))
            if waiting is not None and not waiting.done():
                waiting.set_result(buffer[payload:end])
        else:
            super()._take(buffer, begin, end)


@dataclass
class Chain:
    """A publisher's reliable publications for one store."""

    previous: int = 0
    acknowledged: int = 0  # the number up to which the store said that everything is durable
    waiting: dict[int, bytes] = field(default_factory=dict)  # number and frame of those that are not

    def heard(self, number: int) -> bool:
        self.acknowledged = max(self.acknowledged, number)
        done = [each for each in self.waiting if each <= number]
        for each in done:
            del self.waiting[each]
        return bool(done)


class Publisher:
    """One session: it publishes to several stores in turn, some publications without a store, and wanders."""

    def __init__(self, name: str, ports: Sequence[int], topics: Sequence[str], count: int) -> None:
        self._draw = Random(f"publisher {name}")
        self.name = name
        self.secret = self._draw.randbytes(32)
        self.origin = origin_of(self.secret)
        self._ports = ports
        self._topics = topics
        self._left = count
        self._sequence = 0
        self.chains: dict[str, Chain] = {}
        self.sent: dict[int, bytes] = {}  # everything reliable, by number
        self.problems: list[str] = []
        self._moved = asyncio.Event()

    @property
    def is_done(self) -> bool:
        return not self._left and not any(chain.waiting for chain in self.chains.values())

    def chain_of(self, store: str) -> Chain:
        return self.chains.setdefault(store, Chain())

    async def run(self) -> None:
        while not self.is_done:
            link = StoreLink(self.name, self.secret, self._heard)
            try:
                async with asyncio.timeout(REQUEST_S):
                    await link.join("127.0.0.1", self._draw.choice(self._ports))
                await self._publish(link)
            except (*LINK_ERRORS, RefusedError):
                await asyncio.sleep(PAUSE_S)
            finally:
                link.leave()

    async def _publish(self, link: StoreLink) -> None:
        stores = {topic: await link.store_for(topic) for topic in self._topics}
        for store in dict.fromkeys(stores.values()):
            await self._attach(link, store)
        wanders_after = self._draw.randint(100, 600)
        while not self.is_done and not link.ended and wanders_after > 0:
            if self._left and sum(len(chain.waiting) for chain in self.chains.values()) < WINDOW:
                count = min(self._left, self._draw.randint(1, 20))
                self._left -= count
                wanders_after -= count
                for _ in range(count):
                    self._send(link, stores)
                await asyncio.sleep(self._draw.random() * 0.1)
                continue
            self._moved.clear()
            try:
                async with asyncio.timeout(STILL_S):
                    await self._moved.wait()
            except TimeoutError:
                for store in self.chains:
                    await self._attach(link, store)

    def _send(self, link: StoreLink, stores: dict[str, str]) -> None:
        self._sequence += 1
        topic = self._draw.choice(self._topics)
        store = stores[topic]
        chain = self.chains[store]
        is_reliable = self._draw.random() < 0.9
        headers = json.dumps({"$q": [store, chain.previous], "n": self._sequence} if is_reliable else {}).encode()
        payload = self._draw.randbytes(self._draw.choice((0, 20, 300, 5_000)))
        number = {"origin": self.origin, "sequence": self._sequence}
        raw = pack(EVENT, topic=topic.encode(), headers=headers, payload=payload, **number)
        if is_reliable:
            chain.previous = self._sequence
            chain.waiting[self._sequence] = self.sent[self._sequence] = raw
        link.send(raw)

    async def _attach(self, link: StoreLink, store: str) -> None:
        have = (await link.request(do="attach", store=store))["have"]
        chain = self.chain_of(store)
        if have < chain.acknowledged:
            self.problems.append(f"{self.name}: {store} has {have}, but acknowledged {chain.acknowledged}")
        chain.heard(have)
        for raw in chain.waiting.values():
            link.send(repeated(raw))
        self._link = link

    def _heard(self, frame: Stored) -> None:
        if not frame.flags & ACKNOWLEDGEMENT:
            return
        chain = self.chains.get(f"{frame.store:016x}")
        if chain is None:
            return  # the answer to `attach` is still on its way
        body = json.loads(frame.payload) if frame.payload else {}
        if body.get("refused"):
            self.problems.append(f"{self.name}: refused {body['refused']}")
        if chain.heard(frame.sequence):
            self._moved.set()
        if (missing := body.get("missing", 0)) and not self._link.ended:
            for number, raw in chain.waiting.items():
                if frame.sequence < number <= missing:
                    self._link.send(repeated(raw))


def repeated(raw: bytes) -> bytes:
    return raw[:5] + bytes([raw[5] | REPEAT]) + raw[6:]


class Taken(NamedTuple):
    position: int
    raw: bytes


class Reader:
    """A durable subscription to one store. ``keeps`` says what outlives its links: its position, or nothing of its own,
    so that it goes on where the store knows that it acknowledged."""

    def __init__(self, name: str, ports: Sequence[int], pattern: str, topic: str, *, keeps: bool) -> None:
        self._draw = Random(f"reader {name}")
        self._secret = self._draw.randbytes(32)
        self.name = name
        self._ports = ports
        self.pattern = pattern
        self._topic = topic
        self.keeps = keeps
        self.store = ""
        self.taken: list[Taken] = []
        self.expected = 0  # the next position
        self.acknowledged = 0  # the store said that this is durable
        self.problems: list[str] = []
        self._channel = 0
        self._is_open = False
        self._is_late = False
        self._moved = asyncio.Event()

    async def run(self) -> None:
        while True:
            link = StoreLink(self.name, self._draw.randbytes(32), self._took)
            try:
                async with asyncio.timeout(REQUEST_S):
                    await link.join("127.0.0.1", self._draw.choice(self._ports))
                await self._read(link)
            except (*LINK_ERRORS, RefusedError):
                await asyncio.sleep(PAUSE_S)
            finally:
                link.leave()

    async def _read(self, link: StoreLink) -> None:
        self.store = self.store or await link.store_for(self._topic)
        await self._open(link)
        credited = self.expected
        loop = asyncio.get_running_loop()
        leaves_at = loop.time() + self._draw.uniform(1.0, 8.0)
        while not link.ended and loop.time() < leaves_at:
            self._moved.clear()
            try:
                async with asyncio.timeout(0.5):
                    await self._moved.wait()
            except TimeoutError:
                credited = -1
            if not self._is_open:
                await self._open(link)
            if self._is_late or self.expected - credited >= CREDIT_EVERY or credited < 0:
                again, self._is_late, credited = self._is_late, False, self.expected
                await link.request(do="credit", store=self.store, channel=self._channel, at=self.expected, again=again)
                if self._draw.random() < 0.5:
                    done = self.expected
                    shown = {"proof": self._proof(self.name)}
                    answer = await link.request(do="ack", store=self.store, name=self.name, before=done, **shown)
                    if answer.get("before", 0) < done:
                        self.problems.append(f"{self.name}: acknowledged {done}, was told {answer}")
                    self.acknowledged = max(self.acknowledged, answer.get("before", 0))

    def _proof(self, name: str) -> str:
        """That the name is ours: we have no credentials."""
        return hmac.new(self._secret, f"{self.store}/{name}".encode(), hashlib.sha256).hexdigest()

    async def _open(self, link: StoreLink) -> None:
        self._channel += 1
        self._is_open = True
        where: dict[str, Any] = {"position": self.expected} if self.keeps and self._channel > 1 else {}
        where |= {"proof": self._proof(self.name), "owner": self._proof("")}
        asked = {"name": self.name, "filter": self.pattern, "start": "first", "window": READ_WINDOW, **where}
        self.expected, before = 1 << 62, self.expected  # frames that come before the answer are sent again
        try:
            found = await link.request(do="open", store=self.store, channel=self._channel, **asked)
        except BaseException:
            self.expected = before
            raise
        if not self.keeps and found["position"] > before:
            self.problems.append(f"{self.name}: goes on at {found['position']}, but only had all before {before}")
        if not self.keeps and found["position"] < self.acknowledged:
            self.problems.append(f"{self.name}: goes on at {found['position']}, acknowledged {self.acknowledged}")
        self.expected = before if self.keeps else found["position"]
        self._is_late = True

    def _took(self, frame: Stored) -> None:
        if frame.flags & NEWS:
            self._told(json.loads(frame.payload))
        elif not frame.flags:
            channel, _, before, after = struct.unpack_from("<IIQQ", frame.headers)
            if channel != self._channel or f"{frame.store:016x}" != self.store:
                return
            if before > self.expected:
                self._is_late = True
            elif after > self.expected:
                for place, raw in positions(frame, before):
                    if place >= self.expected:
                        self.taken.append(Taken(place, raw))
                self.expected = after
        self._moved.set()

    def _told(self, news: dict[str, Any]) -> None:
        if news.get("channel") != self._channel:
            return
        if news.get("gap"):
            self.problems.append(f"{self.name}: {news}")
        elif news.get("code"):
            self._is_open = False


def positions(frame: Stored, before: int) -> list[tuple[int, bytes]]:
    """The publications in a STORED frame, each with its position."""
    offsets = struct.unpack_from(f"<{(len(frame.headers) - 24) // 4}I", frame.headers, 24)
    begin, raws = 0, []
    for end in frame_ends(frame.payload):
        raws.append(frame.payload[begin:end])
        begin = end
    return [(before + offset, raw) for offset, raw in zip(offsets, raws, strict=True)]


async def whole_log(port: int, topic: str) -> tuple[str, list[Taken]]:
    """The id of the store that serves a topic, and everything in it, read through a broker.

    Right after the last fault, the store may still be out of reach of that broker.
    """
    for attempt in range(ATTEMPTS):
        try:
            return await _whole_log(port, topic)
        except (RefusedError, *LINK_ERRORS):
            if attempt == ATTEMPTS - 1:
                raise
            await asyncio.sleep(PAUSE_S)
    raise AssertionError


async def _whole_log(port: int, topic: str) -> tuple[str, list[Taken]]:
    frames: list[Stored] = []
    link = StoreLink("replay", Random(port).randbytes(32), frames.append)
    await link.join("127.0.0.1", port)
    store = await link.store_for(topic)
    (log,) = (await link.request(do="logs", store=store))["logs"]
    body = {"store": store, "channel": 1}
    await link.request(do="open", end=log["next"], start="first", **body)
    taken: dict[int, bytes] = {}
    at = 0
    while at < log["next"]:
        await asyncio.sleep(PAUSE_S)
        for frame in frames:
            if not frame.flags:
                _, _, before, after = struct.unpack_from("<IIQQ", frame.headers)
                taken.update(positions(frame, before) if before <= at else [])
                at = max(at, after) if before <= at else at
        frames.clear()
        if at < log["next"]:
            await link.request(do="credit", at=at, again=True, **body)
    link.leave()
    return store, [Taken(place, taken[place]) for place in sorted(taken)]
