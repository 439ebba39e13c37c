"""A broker process for tests: started by the command a user types, on free ports of this machine.

In:    a folder for its certificates and settings; more settings as TOML.
Out:   ports for TCP and TLS, certificates for clients, its log lines, the administrator's token.
State: one process; it ends with the ``with`` block, whatever happens.
Not here: what is said to it (stdlib_client.py and the tests).
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from heliograph.model.identity import Role
from heliograph.trust.certificates import Pair, issue, make_authority

SECONDS_MAX = 60.0  # a loaded machine may take seconds to start Python

SETTINGS = """
[broker]
name = "under-test"

[[listener]]
name = "plain"
port = 0

[[listener]]
name = "secure"
port = 0
secure = true

[[listener]]
name = "mutual"
port = 0
secure = true
auth = "certificate"

[tls]
certificate = "broker.crt"
key = "broker.key"
authority = "authority.crt"

[log]
format = "json"
level = "LEVEL"
"""


class LiveBroker:
    """A running broker and what it says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, int] = {}
        self.lines: list[dict[str, Any]] = []
        self.process: subprocess.Popen[str] | None = None

    def start(self, settings: str, log_level: str) -> None:
        self._write_certificates()
        (self.folder / "heliograph.toml").write_text(SETTINGS.replace("LEVEL", log_level) + settings)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH_")}
        environment["HELIOGRAPH_RUNTIME_DIR"] = str(self.folder / "run")
        command = [
            sys.executable,
            "-c",
            "from heliograph.cli.broker import app; app()",
            "run",
            "--config",
            "heliograph.toml",
        ]
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=environment, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        threading.Thread(target=self._read_log, daemon=True).start()
        self.until(lambda: any(line.get("text", "").startswith("ready") for line in self.lines))
        opened = next(line["text"] for line in self.lines if line.get("text", "").startswith("open on"))
        names = re.findall(r'^name = "(\w+)"$', SETTINGS, re.MULTILINE)
        self.ports = dict(zip(names, map(int, re.findall(r"127\.0\.0\.1:(\d+) \(", opened)), strict=True))

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for something that must come."""
        assert self.process is not None
        end = time.monotonic() + SECONDS_MAX
        while not true():
            assert self.process.poll() is None, f"the broker ended:\n{self.log}"
            assert time.monotonic() < end, f"it did not come in time; the broker said:\n{self.log}"
            time.sleep(0.01)

    @property
    def log(self) -> str:
        return "\n".join(json.dumps(line) for line in self.lines)

    @property
    def admin_token(self) -> str:
        return (self.folder / "run" / f"admin-{self.ports['plain']}.token").read_text()

    def notes(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["note"] == kind]

    def tls(self, client: str | None = None) -> ssl.SSLContext:
        """For a client that trusts this broker and, if named, shows a certificate of its own."""
        context = ssl.create_default_context(cafile=str(self.folder / "authority.crt"))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if client is not None:
            context.load_cert_chain(self.folder / f"{client}.crt", self.folder / f"{client}.key")
        return context

    def _write_certificates(self) -> None:
        now = datetime.now(UTC)
        authority = make_authority("authority", now - timedelta(days=20))
        stranger = make_authority("stranger", now)
        self._write("authority", Pair(authority.certificate, b""))
        self._write("broker", issue(authority, "under-test", [Role.BROKER], ["127.0.0.1", "localhost"], now))
        self._write("sensor-7", issue(authority, "sensor-7", [Role.CLIENT], [], now))
        self._write("expired", issue(authority, "sensor-8", [Role.CLIENT], [], now - timedelta(days=10), days=1))
        self._write("untrusted", issue(stranger, "sensor-9", [Role.CLIENT], [], now))

    def _write(self, name: str, pair: Pair) -> None:
        (self.folder / f"{name}.crt").write_bytes(pair.certificate)
        key = self.folder / f"{name}.key"
        key.touch(mode=0o600)
        key.write_bytes(pair.key)

    def _read_log(self) -> None:
        assert self.process is not None
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"note": "unreadable", "text": line.rstrip()})


@contextmanager
def live_broker(folder: Path, settings: str = "", log_level: str = "debug") -> Iterator[LiveBroker]:
    """A broker that runs inside the ``with`` block."""
    broker = LiveBroker(folder)
    try:
        broker.start(settings, log_level)
        yield broker
    finally:
        if broker.process is not None:
            broker.stop()
