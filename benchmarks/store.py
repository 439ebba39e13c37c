"""store: acknowledged durable publications a second, beside Redis, NATS JetStream, RabbitMQ and bare fdatasync.

In:    nothing; temporary folders on the disk that TMPDIR names.
Out:   publications of 256 B a second, one at a time and with 1,000 and 10,000 under way; replay to one reader.
State: none.
Not here: the vault alone (vault.py), the client library (the load generator writes the frames itself).

The store is in its own process and flushes before it acknowledges; `via_broker` has another broker between.
Redis has a stream with `appendfsync always`. JetStream stores on file but does not flush each message; what it says is
acknowledged may be lost with the machine. RabbitMQ is a quorum queue with confirms, if pika and the server are there.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from benchmarks import machine
from benchmarks.field import say
from benchmarks.figures import medians, ratios, spread, table, values
from benchmarks.generator import RunError
from benchmarks.peers import rabbitmq
from benchmarks.peers.server import plain_environment
from benchmarks.peers.system import find
from benchmarks.ports import free_port
from heliograph.model.origin import origin_of
from heliograph.wire import stores
from heliograph.wire.frames import HEAD, Frame, Kind, ServiceFlag, control, service
from heliograph.wire.splitter import Splitter

SAYS = "publications a second that are durable when acknowledged, and replay to one reader"
BYTES = 256
CASES = {"one": 1, "window_1000": 1_000, "window_10000": 10_000}
REPLAY = "replay"
FIGURE = "publications_s"
OURS, VIA, REDIS, NATS, RABBIT, LIMIT = "ours", "via_broker", "redis", "jetstream", "rabbitmq", "fdatasync"
BUDGETS = {"one": (REDIS, 0.7), "window_1000": (REDIS, 1.5)}
REPLAY_BUDGET = 300_000
READY_S = 20.0
PAYLOAD = b"x" * BYTES
KINDS = {int(kind): 1 << 21 for kind in Kind}


class Publisher(Protocol):
    """A peer's connection: send some, and count acknowledgements."""

    sock: socket.socket

    def batch(self, count: int) -> bytes:
        """The next publications."""
        ...

    def acknowledged(self, data: bytes) -> int:
        """How many more are acknowledged by these bytes."""
        ...


def flow(publisher: Publisher, window: int, seconds: float) -> float:
    """Keep a window full for a while; acknowledged publications a second."""
    sock = publisher.sock
    sock.setblocking(False)
    under_way = done = 0
    out = b""
    begin = time.perf_counter()
    stop = begin + seconds
    while True:
        now = time.perf_counter()
        if now >= stop:
            break
        if not out and under_way < window:
            count = min(window - under_way, 500)
            out = publisher.batch(count)
            under_way += count
        ready, room, _ = select.select([sock], [sock] if out else [], [], 0.5)
        if room:
            try:
                out = out[sock.send(out) :]
            except BlockingIOError:
                pass
        if ready:
            data = sock.recv(1 << 18)
            if not data:
                raise RunError("the server closed the connection")
            count = publisher.acknowledged(data)
            under_way -= count
            done += count
    return done / (time.perf_counter() - begin)


class OurPublisher:
    """Heliograph's frames, written by hand."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secret = os.urandom(16)
        self._origin = origin_of(secret)
        self._splitter = Splitter(KINDS)
        self._sequence = self._have = 0
        self._frames: list[Frame] = []
        self._numbers = 0
        hello = {"versions": [1], "secret": secret.hex()}
        self.sock.sendall(control(Kind.HELLO, 0, json.dumps(hello).encode()))
        deadline = time.monotonic() + READY_S
        found: list[Any] = []
        while not found:
            found = self.ask({"do": "find", "topic": "bench/t"})["stores"]
            if time.monotonic() > deadline:
                raise RunError("no store was found")
        self.store = found[0]["store"]
        self.ask({"do": "attach", "store": self.store})

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """A request to the service `stores`."""
        self._numbers += 1
        self.sock.sendall(service(b"stores", json.dumps(request).encode(), self._numbers))
        while True:
            for raw in self._splitter.split(self.sock.recv(1 << 18)):
                frame = Frame(raw)
                if frame.kind == Kind.SERVICE and frame.sequence == self._numbers:
                    if frame.flags & ServiceFlag.REFUSAL:
                        raise RunError(f"the store said {frame.payload!r}")
                    answer: dict[str, Any] = json.loads(frame.payload)
                    return answer

    def batch(self, count: int) -> bytes:
        """EVENT frames with `$q`."""
        frames = []
        for _ in range(count):
            headers = b'{"$q":["%b",%d]}' % (self.store.encode(), self._sequence)
            self._sequence += 1
            length = 24 + 7 + len(headers) + BYTES
            frames.append(HEAD.pack(length, 1, 0, 7, self._origin, self._sequence, len(headers)) + b"bench/t" + headers)
            frames.append(PAYLOAD)
        return b"".join(frames)

    def acknowledged(self, data: bytes) -> int:
        """Cumulative."""
        before = self._have
        for raw in self._splitter.split(data):
            frame = Frame(raw)
            if frame.kind == Kind.STORED and frame.flags & stores.StoredFlag.ACK:
                self._have = max(self._have, frame.sequence)
            elif frame.kind == Kind.GOODBYE:
                raise RunError(f"the broker said {frame.payload!r}")
        return self._have - before

    def replay(self, count: int, pattern: str = "#", wanted: int | None = None) -> float:
        """Read so many publications from the first on, or of these what a filter wants; how many a second."""
        self.sock.setblocking(True)
        begin = time.perf_counter()
        opened = {"do": "open", "store": self.store, "channel": 1, "start": "first", "window": 50_000, "end": count}
        opened["filter"] = pattern
        self._numbers += 1
        self.sock.sendall(service(b"stores", json.dumps(opened).encode(), self._numbers))
        got = at = told = 0
        while at < count:
            for raw in self._splitter.split(self.sock.recv(1 << 20)):
                frame = Frame(raw)
                if frame.kind == Kind.STORED and not frame.flags:
                    _, _, at, offsets = stores.span_of(frame)
                    got += len(offsets)
            if at - told > 1_000:
                told = at
                self._numbers += 1
                credit = {"do": "credit", "store": self.store, "channel": 1, "at": at, "window": 50_000}
                self.sock.sendall(service(b"stores", json.dumps(credit).encode(), self._numbers))
        if got != (count if wanted is None else wanted):
            raise RunError(f"the replay brought {got} of {count if wanted is None else wanted}")
        return got / (time.perf_counter() - begin)


class RedisPublisher:
    """XADD in RESP."""

    def __init__(self, port: int) -> None:
        self.sock = _connected(port)
        self._command = b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nd\r\n$%d\r\n%b\r\n" % (BYTES, PAYLOAD)
        self._rest = b""

    def batch(self, count: int) -> bytes:
        """The same command again and again."""
        return self._command * count

    def acknowledged(self, data: bytes) -> int:
        """Each answer is a bulk string of two lines: its length and the id."""
        if b"-" in data[:1] and not self._rest:
            raise RunError(f"redis said {data[:80]!r}")
        lines = (self._rest + data).count(b"\r\n")
        whole = lines // 2
        taken = 0
        buffer = self._rest + data
        for _ in range(2 * whole):
            taken = buffer.index(b"\r\n", taken) + 2
        self._rest = buffer[taken:]
        return whole


class NatsPublisher:
    """PUB with a reply subject; JetStream's acknowledgement is a MSG there."""

    def __init__(self, port: int) -> None:
        self.sock = _connected(port)
        self.sock.recv(4_096)
        stream = json.dumps({"name": "s", "subjects": ["bench.t"], "storage": "file", "retention": "limits"}).encode()
        self.sock.sendall(b'CONNECT {"verbose":false}\r\nSUB r 1\r\nSUB c 2\r\n')
        self.sock.sendall(b"PUB $JS.API.STREAM.CREATE.s c %d\r\n%b\r\n" % (len(stream), stream))
        said = b""
        while b"MSG c 2" not in said:
            said += self.sock.recv(4_096)
        if b'"error"' in said:
            raise RunError(f"JetStream said {said!r}")
        self._command = b"PUB bench.t r %d\r\n%b\r\n" % (BYTES, PAYLOAD)
        self._tail = b""

    def batch(self, count: int) -> bytes:
        """The same command again and again."""
        return self._command * count

    def acknowledged(self, data: bytes) -> int:
        """One MSG for each."""
        if b"PING\r\n" in data:
            self.sock.sendall(b"PONG\r\n")
        joined = self._tail + data
        self._tail = joined[-5:]
        return joined.count(b"MSG r ") - self._tail.count(b"MSG r ")


def _connected(port: int) -> socket.socket:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > deadline:
                raise RunError("a server did not start") from None
            time.sleep(0.05)
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock


@contextmanager
def _process(command: list[str], folder: str) -> Iterator[subprocess.Popen[bytes]]:
    with (Path(folder) / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=plain_environment(), stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _ours(stack: ExitStack, folder: str, via: bool) -> OurPublisher:
    """A store in its own process; with ``via``, the publisher is at another broker."""
    key = Path(folder) / "key"
    key.write_text("ab" * 32)
    key.chmod(0o600)
    port, broker = free_port(), free_port()
    program = [sys.executable, "-m", "heliograph.cli.main"]
    common = ["--network-key-file", str(key), "--log-level", "warning"]
    if via:
        listen = ["--listen", f"127.0.0.1:{broker}", "--name", "hub", "--no-discovery"]
        stack.enter_context(_process([*program, "broker", "run", *listen, *common], folder))
        _connected(broker).close()
    link = ["--link", f"127.0.0.1:{broker}"] if via else []
    listen = ["--listen", f"127.0.0.1:{port}", "--name", "bench", "--place", folder, "--pattern", "bench/#"]
    stack.enter_context(_process([*program, "store", "run", *listen, *link, *common], folder))
    _connected(port).close()
    return OurPublisher(broker if via else port)


def _publisher(stack: ExitStack, system: str, folder: str) -> Publisher:
    if system in (OURS, VIA):
        return _ours(stack, folder, system == VIA)
    port = free_port()
    if system == REDIS:
        command = [str(find("redis-server")), "--port", str(port), "--dir", folder, "--appendonly", "yes"]
        stack.enter_context(_process([*command, "--appendfsync", "always", "--save", ""], folder))
        return RedisPublisher(port)
    conf = Path(folder) / "nats.conf"
    conf.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}" }}\n')
    stack.enter_context(_process([str(find("nats-server")), "-c", str(conf)], folder))
    return NatsPublisher(port)


def _flush(folder: str, records: int, seconds: float) -> float:
    """What the disk can do: the same bytes in groups, flushed, and nothing else."""
    data = bytes(BYTES * records)
    flush: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
    file = os.open(Path(folder) / "file", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    groups = 0
    begin = time.perf_counter()
    try:
        while (lasted := time.perf_counter() - begin) < seconds:
            os.write(file, data)
            flush(file)
            groups += 1
    finally:
        os.close(file)
    return groups * records / lasted


def run(quick: bool) -> dict[str, Any]:
    """All in turns, each with a new folder."""
    seconds = 1.2 if quick else 6.0
    peers = {REDIS: "redis-server", NATS: "nats-server"}
    absent = {name: f"{program} is not installed" for name, program in peers.items() if find(program) is None}
    if (problem := rabbitmq.absent()) is not None:
        absent[RABBIT] = problem
    systems = [name for name in (OURS, VIA, REDIS, NATS, RABBIT, LIMIT) if name not in absent]
    rounds: list[dict[str, Any]] = []
    for number in range(1, (2 if quick else 7) + 1):
        say(f"round {number}")
        for system in list(systems if number % 2 else systems[::-1]):
            try:
                found = list(_measure(system, seconds, 50_000 if quick else 300_000))
            except RunError as error:
                if system in (OURS, VIA):
                    raise
                absent[system] = f"{error}"  # a peer that fails is left out; ours must not fail
                systems.remove(system)
                continue
            rounds += [{"round": number, **entry} for entry in found]
    rounds = [entry for entry in rounds if entry["system"] not in absent]
    return _result(rounds, systems, absent) | {"quick": quick, "machine": machine.facts()}


def _measure(system: str, seconds: float, replayed: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="heliograph-bench-") as folder, ExitStack() as stack:
        if system == RABBIT:
            port = stack.enter_context(rabbitmq.running(folder))
            for case, window in CASES.items():
                yield {"case": case, "system": system, FIGURE: rabbitmq.flow(port, window, seconds, PAYLOAD)}
            return
        publisher = None if system == LIMIT else _publisher(stack, system, folder)
        for case, window in CASES.items():
            rate = _flush(folder, window, seconds) if publisher is None else flow(publisher, window, seconds)
            yield {"case": case, "system": system, FIGURE: rate}
            if publisher is not None:
                _drain(publisher)
        if isinstance(publisher, OurPublisher):
            while publisher._have < replayed:
                flow(publisher, 10_000, 0.5)
                _drain(publisher)
            yield {"case": REPLAY, "system": system, FIGURE: publisher.replay(replayed)}


def _drain(publisher: Publisher) -> None:
    """Wait until nothing is under way."""
    while select.select([publisher.sock], [], [], 0.3)[0]:
        publisher.acknowledged(publisher.sock.recv(1 << 18))


def _result(rounds: list[dict[str, Any]], systems: list[str], absent: dict[str, str]) -> dict[str, Any]:
    def figure(system: str, case: str) -> float | None:
        return medians(rounds, system, case, [FIGURE])[FIGURE] if values(rounds, system, case, FIGURE) else None

    peers = [system for system in systems if system != OURS]
    compared = {case: ratios(rounds, case, OURS, peers, FIGURE) for case in CASES}
    found = {case: {peer: entry["ratio"] for peer, entry in each.items()} for case, each in compared.items()}
    budget = [
        {"case": case, "peer": peer, "least": least, "is": found[case][peer], "met": found[case][peer] >= least}
        for case, (peer, least) in BUDGETS.items()
        if peer in systems
    ]
    replay = figure(OURS, REPLAY)
    assert replay is not None
    budget.append({"case": REPLAY, "peer": "", "least": REPLAY_BUDGET, "is": replay, "met": replay >= REPLAY_BUDGET})
    return {
        "name": "store",
        "unit": f"publications of {BYTES} B a second, durable when acknowledged (JetStream: not flushed each); medians",
        "ours": {"cases": {case: figure(OURS, case) for case in (*CASES, REPLAY)}},
        "peers": {peer: {"cases": {case: figure(peer, case) for case in (*CASES, REPLAY)}} for peer in peers},
        "absent": absent,
        "ratios": found,
        "rounds": rounds,
        "spread": {
            case: {system: spread([*values(rounds, system, case, FIGURE).values()]) for system in systems}
            for case in CASES
        },
        "budget": budget,
    }


def show(result: dict[str, Any]) -> str:
    """The result as a table."""
    rows = []
    for case in (*CASES, REPLAY):
        rows.append([case, result["ours"]["cases"][case], *(peer["cases"][case] for peer in result["peers"].values())])
    return table(["case", OURS, *result["peers"]], rows)
