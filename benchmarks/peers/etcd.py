"""etcd: one server, spoken to by its HTTP gateway.

In:    a folder, a port.
Out:   an Etcd that can be started; ms per range, and from put until a watch tells it.
State: none; connections last as long as a measurement.
Not here: clusters of it.
"""

from __future__ import annotations

import http.client
import json
import subprocess
from base64 import b64encode
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import perf_counter
from typing import Any

from benchmarks.certificates import TlsFiles
from benchmarks.links import Link
from benchmarks.peers.system import find
from benchmarks.ports import free_port

KEY = b64encode(b"machines/1").decode()
WAIT_S = 10


class Etcd:
    """Debian's etcd-server."""

    name = "etcd"

    def absent(self) -> str | None:
        """Why it cannot run here, or None."""
        return None if find("etcd") else "etcd is not installed (make bench-peers)"

    def version(self) -> str:
        """As it says itself."""
        said = subprocess.run([find("etcd") or "etcd", "--version"], check=True, capture_output=True, text=True)
        return said.stdout.splitlines()[0].rpartition(" ")[2]

    def command(self, folder: Path, port: int, tls: TlsFiles | None) -> list[str]:
        """One member of its own cluster."""
        clients, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
        return [
            *(find("etcd") or "etcd", "--data-dir", str(folder / "data"), "--name", "one"),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"one={peers}"),
        ]

    def connect(self, port: int, ca_file: str | None) -> Link:
        """Ready once it answers a range."""
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        try:
            _call(line, "/v3/kv/range", {"key": KEY})
        except (http.client.HTTPException, ValueError) as error:
            raise ConnectionError(str(error)) from None
        finally:
            line.close()
        return Link(port)

    def measure(self, port: int, rounds: int) -> dict[str, Any]:
        """Range of one key, and put until the watch tells it."""
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        _call(line, "/v3/kv/put", {"key": KEY, "value": KEY})
        ranges = []
        for _ in range(rounds):
            begin = perf_counter()
            assert _call(line, "/v3/kv/range", {"key": KEY})["count"] == "1"
            ranges.append((perf_counter() - begin) * 1_000)
        told = _watched(line, port, rounds)
        line.close()
        return {"range_ms": round(median(ranges), 3), "put_to_watch_ms": round(median(told), 3)}


def _call(line: http.client.HTTPConnection, path: str, body: dict[str, Any]) -> dict[str, Any]:
    line.request("POST", path, json.dumps(body))
    answer = line.getresponse()
    said: dict[str, Any] = json.loads(answer.read())
    if answer.status != http.client.OK:
        raise ConnectionError(str(said))
    return said


def _watched(line: http.client.HTTPConnection, port: int, rounds: int) -> list[float]:
    watcher = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    watcher.request("POST", "/v3/watch", json.dumps({"create_request": {"key": KEY}}))
    stream = watcher.getresponse()
    assert json.loads(stream.readline())["result"]["created"]
    heard, at = Event(), [0.0]

    def listen() -> None:
        for _ in range(rounds):
            stream.readline()
            at[0] = perf_counter()
            heard.set()

    listener = Thread(target=listen, daemon=True)
    listener.start()
    took = []
    for _ in range(rounds):
        begin = perf_counter()
        _call(line, "/v3/kv/put", {"key": KEY, "value": KEY})
        assert heard.wait(WAIT_S), "the watch did not tell of a put"
        heard.clear()
        took.append((at[0] - begin) * 1_000)
    watcher.close()
    return took
