"""A network address translator between two network namespaces, in this process.

In:    packets of both sides, from a TUN device in each namespace.
Out:   the same packets with other addresses, ports and checksums, at the other side; or nothing.
State: two namespaces, two devices, the table of translations; all gone with the block.
Not here: what runs in the namespaces (test_nat.py).

Inside is one machine, 10.0.0.2. Outside it is seen as 198.51.100.254. Nobody outside reaches it unasked. A *symmetric*
translator gives each pair of ends a port of its own, as masquerading routers do: only whoever was addressed can answer.
A *cone* gives each port inside one port outside, through which anybody may answer once it has been used.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import socket
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

INSIDE, PUBLIC = "10.0.0.2", "198.51.100.254"
OUTSIDE = ("198.51.100.1", "198.51.100.2", "198.51.100.3")
PORTS_FROM = 40_000
TUN = Path("/dev/net/tun")
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
TCP, UDP = 6, 17
CHECKSUM_AT = {TCP: 16, UDP: 6}  # in the transport's header
FRAGMENT = 0x3FFF  # of the flags: more fragments, or an offset
POLL_S = 0.2
SECONDS = 20

Key = tuple[int, bytes, bytes, bytes]  # protocol, port inside, address and port of the other end (empty: any)


def ip(*words: str) -> None:
    ran = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=SECONDS, check=False)
    if ran.returncode:
        raise OSError(f"ip {' '.join(words)}: {ran.stderr.strip()}")


def why_not() -> str:
    """Why there can be no translator on this machine; empty if there can."""
    if shutil.which("ip") is None:
        return "the command ip is missing"
    name = f"hg{os.getpid()}-try"
    try:
        ip("netns", "add", name)
        ip("netns", "delete", name)
        os.close(os.open(TUN, os.O_RDWR))
    except OSError as error:
        return f"no namespaces and TUN devices here: {error}"
    return ""


@contextmanager
def namespace(name: str) -> Iterator[str]:
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "delete", name)


@contextmanager
def device(name: str, where: str, addresses: tuple[str, ...], route: str) -> Iterator[int]:
    """A TUN device in a namespace; the descriptor stays with us."""
    descriptor = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH14x", name.encode(), IFF_TUN | IFF_NO_PI))
        ip("link", "set", name, "netns", where)
        for address in addresses:
            ip("-n", where, "address", "add", f"{address}/32", "dev", name)
        ip("-n", where, "link", "set", name, "up")
        ip("-n", where, "route", "add", route, "dev", name)
        yield descriptor
    finally:
        os.close(descriptor)


def checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def readdressed(packet: bytes, source: tuple[bytes, bytes] | None, target: tuple[bytes, bytes] | None) -> bytes:
    """The packet from another source, or to another target: address and port."""
    raw = bytearray(packet)
    head = (raw[0] & 15) * 4
    for end, address_at, port_at in ((source, 12, head), (target, 16, head + 2)):
        if end is not None:
            raw[address_at : address_at + 4], raw[port_at : port_at + 2] = end
    raw[10:12] = bytes(2)
    raw[10:12] = checksum(bytes(raw[:head])).to_bytes(2, "big")
    at = head + CHECKSUM_AT[raw[9]]
    raw[at : at + 2] = bytes(2)
    pseudo = bytes(raw[12:20]) + struct.pack("!BBH", 0, raw[9], len(raw) - head)
    raw[at : at + 2] = (checksum(pseudo + bytes(raw[head:])) or 0xFFFF).to_bytes(2, "big")
    return bytes(raw)


class Translator:
    """Passes packets on between two descriptors, in a thread of its own."""

    def __init__(self, inner: int, outer: int, *, symmetric: bool) -> None:
        self.seen: Counter[str] = Counter()  # "udp out", "udp in", "udp refused", and the same with tcp
        self._inner, self._outer = inner, outer
        self._symmetric = symmetric
        self._ports: dict[Key, bytes] = {}
        self._keys: dict[tuple[int, bytes], Key] = {}  # by protocol and port outside
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Translator:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(SECONDS)

    def _work(self) -> None:
        while not self._stopping.is_set():
            ready, _, _ = select.select([self._inner, self._outer], [], [], POLL_S)
            for descriptor in ready:
                packet = os.read(descriptor, 65_536)
                if packet[0] >> 4 != 4 or packet[9] not in CHECKSUM_AT or int.from_bytes(packet[6:8], "big") & FRAGMENT:
                    continue
                passed = self._leave(packet) if descriptor == self._inner else self._enter(packet)
                if passed is not None:
                    os.write(self._outer if descriptor == self._inner else self._inner, passed)

    def _leave(self, packet: bytes) -> bytes:
        protocol, head = packet[9], (packet[0] & 15) * 4
        other = packet[16:20], packet[head + 2 : head + 4]
        key = (protocol, packet[head : head + 2], *(other if self._symmetric else (b"", b"")))
        port = self._ports.get(key)
        if port is None:
            port = self._ports[key] = (PORTS_FROM + len(self._ports)).to_bytes(2, "big")
            self._keys[protocol, port] = key
        self._count(protocol, "out")
        return readdressed(packet, (socket.inet_aton(PUBLIC), port), None)

    def _enter(self, packet: bytes) -> bytes | None:
        protocol, head = packet[9], (packet[0] & 15) * 4
        key = self._keys.get((protocol, packet[head + 2 : head + 4]))
        if key is None or (self._symmetric and key[2:] != (packet[12:16], packet[head : head + 2])):
            self._count(protocol, "refused")
            return None
        self._count(protocol, "in")
        return readdressed(packet, None, (socket.inet_aton(INSIDE), key[1]))

    def _count(self, protocol: int, what: str) -> None:
        self.seen[f"{'udp' if protocol == UDP else 'tcp'} {what}"] += 1


@contextmanager
def translated(*, symmetric: bool) -> Iterator[tuple[str, str, Translator]]:
    """Two namespaces, inside and outside, and the translator that joins them."""
    mark = f"hg{os.getpid()}{'s' if symmetric else 'c'}"
    with ExitStack() as stack:
        home = stack.enter_context(namespace(f"{mark}-home"))
        world = stack.enter_context(namespace(f"{mark}-world"))
        inner = stack.enter_context(device(f"{mark}i", home, (INSIDE,), "default"))
        outer = stack.enter_context(device(f"{mark}o", world, OUTSIDE, f"{PUBLIC}/32"))
        yield home, world, stack.enter_context(Translator(inner, outer, symmetric=symmetric))
