"""Two network namespaces as two machines: the driver, the master, a broker and a store on one, the worker on the other.

In:    a folder; namespaces of users, mounts and networks of its own, which test_hosts.py makes around it.
Out:   on standard output, what `heliograph pipeline archive --master` printed; FORBIDDEN if there can be no network.
State: its processes, which end with it.
Not here: what must be true (test_hosts.py).

The machines know each other by address only, and 127.0.0.1 of one is not the other's.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import heliograph
from tests.live.processes import Process
from tests.pipeline.clusters import MASTER, WORKER, Daemon

HERE, THERE = "10.99.0.1", "10.99.0.2"
FORBIDDEN = 9
ROWS = 500
PATIENCE_S = 240  # executors that do not find their driver are started again and again
WORDS = ("--cores", "1", "--memory", "1g", "--webui-port", "0")


def call(*words: str) -> None:
    if subprocess.run(words, check=False, stdout=sys.stderr).returncode:
        raise SystemExit(FORBIDDEN)


def connected(folder: Path) -> subprocess.Popen[bytes]:
    """A process in the network namespace of the second machine, which has a link to this one."""
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
    call("mount", "--bind", str(hosts), "/etc/hosts")
    there = subprocess.Popen(["unshare", "-n", "sh", "-c", "echo; exec sleep 3600"], stdout=subprocess.PIPE)
    assert there.stdout is not None
    there.stdout.readline()  # it has its namespace
    inside = ("nsenter", "-t", str(there.pid), "-n", "ip")
    call("ip", "link", "set", "lo", "up")
    call("ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(there.pid))
    call("ip", "addr", "add", f"{HERE}/24", "dev", "here")
    call("ip", "link", "set", "here", "up")
    call(*inside, "link", "set", "lo", "up")
    call(*inside, "addr", "add", f"{THERE}/24", "dev", "there")
    call(*inside, "link", "set", "there", "up")
    return there


def main(folder: Path) -> int:
    begun: list[Daemon] = []
    there = connected(folder)
    place = ("--store", "--store-place", str(folder / "kept"))
    try:
        begun.append(
            Daemon(folder, "master", MASTER, "--host", HERE, "--port", "0", "--webui-port", "0", is_local=False)
        )
        url = begun[0].told(r"Starting Spark master at (spark://\S+)")
        on = ("nsenter", "-t", str(there.pid), "-n")
        words = ("--host", THERE, *WORDS, "-d", str(folder / "w"), url)
        begun.append(Daemon(folder, "worker", WORKER, *words, on=on, is_local=False))
        begun[1].told(r"(Successfully registered with master)")
        listening = ("--log-format", "json", "--listen", f"{HERE}:0", "--no-discovery", "--allow-open")
        with Process(folder, *listening, *place) as broker:
            address = f"heliograph://{HERE}:{broker.port}"
            with heliograph.connect_blocking(address) as client:
                client.publish_batch("hosts/1", [b"%d" % number for number in range(ROWS)], reliable=True)
            command = [sys.executable, "-m", "heliograph.cli", "pipeline", "archive", "--url", address, "--json"]
            command += ["--tables", str(folder / "tables"), "--filter", "hosts/#", "--master", url]
            return subprocess.run(command, check=False, timeout=PATIENCE_S).returncode
    finally:
        for each in reversed(begun):
            each.end()
        there.kill()
        there.wait()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
