"""Opening: what a store reads from its vault before it serves requests.

In:    the news that the vault is open.
Out:   the store's id, its names, its log and what is staged; then one call.
State: only what is in progress.
Not here: the names (names.py), the log (tail.py), publishers, which are read when they attach (intake.py).
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.errors import Reason
from heliograph.machine import Instant, Timers
from heliograph.stores.batch_publishers import COMMITS
from heliograph.stores.batches import Batches
from heliograph.stores.names import PREFIX, Names
from heliograph.stores.tail import REFERRED_KEY, Tail
from heliograph.stores.vault_calls import VaultCalls
from heliograph.vault import Committed, KeysRead, Log, LogsRead, Put, ReadKeys, ReadLogs
from heliograph.wire.stores import MAIN

ID_KEY = "id"
AGAIN_NS = 1_000_000_000


class Opening:
    """Reads a vault from the beginning."""

    def __init__(
        self,
        vault: VaultCalls,
        timers: Timers,
        names: Names,
        batches: Batches,
        tail: Tail,
        draw: Callable[[Instant], bytes],
        opened: Callable[[int, Instant], None],
    ) -> None:
        self._vault = vault
        self._timers = timers
        self._names = names
        self._batches = batches
        self._tail = tail
        self._draw = draw  # the random source of a new id
        self._opened = opened

    def begin(self, now: Instant) -> None:
        """The vault is open."""
        self._names.clear()
        self._batches.clear()
        self._tail.open(Log(MAIN))
        self._vault.read(ReadKeys(ID_KEY), self._read_id, self._unread)

    def stop(self) -> None:
        """The vault was lost; it will be opened again."""
        self._timers.cancel("open")

    def _read_id(self, found: KeysRead, now: Instant) -> None:
        value = dict(found.pairs).get(ID_KEY)
        if value is not None and len(value) == 8:
            self._read_keys(int.from_bytes(value, "little"), PREFIX, None)
            return
        drawn = self._draw(now)[:8]

        def made(_: Committed, now: Instant) -> None:
            self._read_keys(int.from_bytes(drawn, "little"), PREFIX, None)

        self._vault.commit([Put(ID_KEY, drawn)], made, self._unread)

    def _read_keys(self, id: int, prefix: str, after: str | None) -> None:
        """Durable names, then the last batches, in pages; then the log."""

        def answered(found: KeysRead, now: Instant) -> None:
            load = self._names.load if prefix == PREFIX else self._batches.publishers.load
            for key, value in found.pairs:
                load(key, value)
            if found.more:
                self._read_keys(id, prefix, found.pairs[-1][0])
            elif prefix == PREFIX:
                self._read_keys(id, COMMITS, None)
            else:
                self._vault.read(ReadLogs(MAIN, None, 1), lambda logs, now: self._read_log(id, logs, now), self._unread)

        self._vault.read(ReadKeys(prefix, after), answered, self._unread)

    def _read_log(self, id: int, found: LogsRead, now: Instant) -> None:
        for log in found.logs:
            if log.name == MAIN:
                self._tail.open(log)

        def answered(found: KeysRead, now: Instant) -> None:
            self._tail.load_referred(dict(found.pairs).get(REFERRED_KEY))
            self._batches.load(lambda now: self._opened(id, now), self._unread)

        self._vault.read(ReadKeys(REFERRED_KEY), answered, self._unread)

    def _unread(self, reason: Reason, now: Instant) -> None:
        """Something could not be read: if the vault is lost, we will be told; otherwise try again."""
        self._timers.set("open", now + AGAIN_NS, self.begin)
