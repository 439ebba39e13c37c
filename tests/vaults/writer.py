"""A process that commits for ever and prints what is durable, until it is killed.

In:    a name and a place.
Out:   a line after each commit: how many records there are.
State: a vault.
Not here: who kills it (test_kill.py).
"""

from __future__ import annotations

import sys

from heliograph.live.vaults.choice import make_backend
from heliograph.vault import Append, Put, ReadLogs, Vault


def main(name: str, place: str) -> None:
    backend = make_backend(Vault(name=name, place=place))
    backend.open()
    logs = backend.read(ReadLogs()).logs  # type: ignore[union-attr]
    count = logs[0].next if logs else 0
    while True:
        group = [[Append("log", b"%d" % n, 1, 0, 0), Put("count", b"%d" % (n + 1))] for n in range(count, count + 3)]
        backend.commit(group)
        backend.tidy(busy=count % 7 == 0)
        count += 3
        sys.stdout.write(f"{count}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
