"""Retention: forgets publications that are too old or too many, a slice at a time.

In:    the settings, time, how far durable subscriptions have acknowledged and which of them are being read.
Out:   reads of the oldest runs, trims; unused names are dropped, and silent publishers forgotten.
State: what is in progress.
Not here: what a trim does (vault.py), durable names (names.py).

The bytes of a batch count where the log refers to them; once the log does so no more, they are removed (staged.py).
A durable subscription holds back what it has not acknowledged, whatever the other limits are, until it has not been
used for ``name_idle_s``. One that is being read is in use, even if nothing arrives for it.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.errors import Reason
from heliograph.machine import Instant, Timers
from heliograph.stores.chain import STATE
from heliograph.stores.config import StoreConfig
from heliograph.stores.intake import ORIGINS
from heliograph.stores.names import NameKey, Names
from heliograph.stores.references import reference_of
from heliograph.stores.tail import Tail
from heliograph.stores.vault_calls import VaultCalls
from heliograph.vault import Change, Committed, Delete, KeysRead, Read, ReadKeys, RunsRead, Trim
from heliograph.wire.stores import MAIN

NS_PER_S = 1_000_000_000
EVERY_NS = 2 * NS_PER_S
SLICE_NS = NS_PER_S // 50  # between two slices of remaining work
PUBLISHERS_EVERY_NS = 600 * NS_PER_S
SLICE_BYTES = 1 << 20


class Retention:
    """Trims the log."""

    def __init__(
        self,
        config: StoreConfig,
        vault: VaultCalls,
        timers: Timers,
        tail: Tail,
        names: Names,
        is_open: Callable[[NameKey], bool],
        forget_publisher: Callable[[int], bool],
        wall: Callable[[Instant], int],
    ) -> None:
        self._config = config
        self._vault = vault
        self._timers = timers
        self._tail = tail
        self._names = names
        self._is_open = is_open  # True if a name is being read
        self._forget_publisher = forget_publisher  # False if something of it is being committed
        self._wall = wall
        self.trimmed = 0  # positions

    def start(self, now: Instant) -> None:
        """The vault is open."""
        self._timers.set("retention", now + EVERY_NS, self._look)
        self._timers.set("publishers", now + PUBLISHERS_EVERY_NS, lambda at: self._sweep(None, at))

    def reload(self, config: StoreConfig) -> None:
        """Apply new limits."""
        self._config = config

    def _look(self, now: Instant) -> None:
        self._timers.set("retention", now + EVERY_NS, self._look)
        self._drop_idle(now)
        if self._is_due:
            self._vault.read(Read(MAIN, self._tail.log.first, None, SLICE_BYTES), self._oldest, self._failed)

    @property
    def _is_due(self) -> bool:
        config, log = self._config, self._tail.log
        if log.first >= log.next:
            return False
        held = self._names.held
        if held is not None and held <= log.first:
            return False
        over = 0 < config.retain_bytes < log.bytes + self._tail.referred_bytes
        return over or config.retain_s > 0 or (not config.retain_acknowledged and held is not None)

    def _oldest(self, found: RunsRead, now: Instant) -> None:
        """Trim those of the oldest runs that are beyond a limit and that no name holds back."""
        config, held = self._config, self._names.held
        old_ns = None if not config.retain_s else self._wall(now) - config.retain_s * NS_PER_S
        referred = self._tail.referred_bytes
        over = 0 if not config.retain_bytes else found.log.bytes + referred - config.retain_bytes
        before, forgotten, until = found.log.first, 0, self._tail.forgotten
        for run in found.runs:
            reference = reference_of(run)
            batch = 0 if reference is None else max(0, reference.until - until)
            size = len(getattr(run, "data", b"")) + batch
            last_ns = getattr(run, "last_ns", None)
            is_old = old_ns is not None and (last_ns is None or last_ns < old_ns)
            is_done = not config.retain_acknowledged and held is not None
            is_over = forgotten + size <= over  # runs go whole: one that is partly within the limit is kept
            if (held is not None and run.next > held) or not (is_old or is_done or is_over):
                break
            before = run.next
            forgotten += size
            until += batch
        if before > found.log.first:
            changes: list[Change] = [Trim(MAIN, before)]
            if until > self._tail.forgotten:
                self._tail.forget(until)
                changes.append(self._tail.referred_put())
            self._vault.commit(changes, self._trimmed, self._failed)

    def _trimmed(self, committed: Committed, now: Instant) -> None:
        log = committed.trimmed[0]
        self.trimmed += log.first - self._tail.log.first
        self._tail.trimmed(log)
        if self._is_due:
            self._timers.set("retention", now + SLICE_NS, self._look)

    def _drop_idle(self, now: Instant) -> None:
        changes: list[Change] = []
        idle = [key for key in self._names.idle(self._wall(now)) if not self._is_open(key)]
        for key in idle[:100]:
            change = self._names.drop(key)
            if change is not None:
                changes.append(change)
        if changes:
            self._vault.commit(changes, lambda _, now: None, self._failed)

    def _sweep(self, after: str | None, now: Instant) -> None:
        """Forget publishers that have been silent for long, in pages."""

        def answered(found: KeysRead, now: Instant) -> None:
            limit = self._wall(now) - self._config.publisher_idle_s * NS_PER_S
            old: list[Change] = [
                Delete(key)
                for key, value in found.pairs
                if value is None or len(value) < STATE.size or STATE.unpack_from(value)[1] < limit
                if self._forget_publisher(int(key.removeprefix(ORIGINS), 16))
            ]
            if old:
                self._vault.commit(old, lambda _, now: None, self._failed)
            wait = SLICE_NS if found.more else PUBLISHERS_EVERY_NS
            last = found.pairs[-1][0] if found.more else None
            self._timers.set("publishers", now + wait, lambda at: self._sweep(last, at))

        self._vault.read(ReadKeys(ORIGINS, after), answered, self._failed)

    def _failed(self, reason: Reason, now: Instant) -> None:
        """The next round tries again."""
