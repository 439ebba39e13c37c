"""etcd over TLS: keys with values, durable, which sign nothing. What `topics` is compared with.

In:    a folder for its files.
Out:   ms per put, and per range of 1, 10 and 100 keys.
State: a server, as long as it is measured.
Not here: publish/subscribe (the other peers); its gRPC: the same server answers JSON over HTTPS.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import certificates
from benchmarks.peers.system import find, not_installed
from benchmarks.ports import free_ports

START_S = 30.0
VALUE = b"v" * 1_200  # as long as a stored topic advertisement of `topics`
COUNTS = (1, 10, 100)


def measure(rounds: int) -> dict[str, Any]:
    """Start it, measure it, stop it."""
    missing = not_installed("etcd")
    if missing is not None:
        return {"absent": missing}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        files = certificates.make(folder)
        client, peer = free_ports(2)
        process = subprocess.Popen(_command(folder, files, client, peer), stderr=subprocess.DEVNULL)
        try:
            return _measure(HTTPSConnection("127.0.0.1", client, context=_context(files)), rounds)
        finally:
            process.kill()
            process.wait()


def _command(folder: Path, files: certificates.TlsFiles, client: int, peer: int) -> list[str]:
    at, beside = f"https://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    return [
        str(find("etcd")),
        *("--data-dir", str(folder / "data"), "--cert-file", str(files.certificate), "--key-file", str(files.key)),
        *("--listen-client-urls", at, "--advertise-client-urls", at, "--listen-peer-urls", beside),
        *("--initial-advertise-peer-urls", beside, "--initial-cluster", f"default={beside}", "--log-level", "error"),
    ]


def _context(files: certificates.TlsFiles) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files.ca))


def _measure(connection: HTTPSConnection, rounds: int) -> dict[str, Any]:
    def ask(what: str, **body: Any) -> dict[str, Any]:
        connection.request("POST", f"/v3/kv/{what}", json.dumps(body))
        said = connection.getresponse().read()
        answer: dict[str, Any] = json.loads(said)
        return answer

    def put(key: str) -> None:
        ask("put", key=_text(key.encode()), value=_text(VALUE))

    def fetch(count: int) -> None:
        found = ask("range", key=_text(b"topic/"), range_end=_text(b"topic0"), limit=str(count))
        assert len(found["kvs"]) == count

    _wait(lambda: put("ready"), connection)
    for number in range(COUNTS[-1]):
        put(f"topic/{number:03d}")
    figures = {"put": _median(rounds, lambda: put("more"))}
    for count in COUNTS:
        figures[f"range_{count}"] = _median(rounds, lambda count=count: fetch(count))  # type: ignore[misc]
    return figures


def _wait(work: Callable[[], None], connection: HTTPSConnection) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            return work()
        except (OSError, HTTPException, ValueError):
            connection.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _median(rounds: int, work: Callable[[], None]) -> float:
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1_000)
    return round(median(took), 2)


def _text(data: bytes) -> str:
    return b64encode(data).decode()
