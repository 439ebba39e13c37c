"""The vaults under test behind one face: SQLite, PostgreSQL, and the simulated one, reached through its world.

In:    commits and queries.
Out:   answers; VaultError where they fail.
State: a temporary folder, a schema, or a world.
Not here: what they should answer (model.py).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from heliograph.errors import Reason
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.node import Node
from heliograph.sim.world import World
from heliograph.vault import (
    Change,
    Committed,
    Found,
    KeysRead,
    LogsRead,
    Query,
    Read,
    ReadKeys,
    ReadLogs,
    RunsRead,
    TailDamage,
    Vault,
    VaultOpened,
)
from tests.sim.machines import CALM, Recorder, run
from tests.vaults.postgres import Server

NUMBERS = count()


class Subject(Protocol):
    """What the suite needs of each."""

    def commit(self, commits: Sequence[Sequence[Change]]) -> list[Committed]: ...

    def read(self, query: Query) -> Found: ...

    def reopen(self) -> None:
        """In order."""

    def crash(self, unfinished: Sequence[Sequence[Change]]) -> None:
        """While these are under way; then it is opened again."""

    def damage(self, log: str, position: int) -> None: ...

    def damage_key(self, key: str) -> None: ...

    def damaged(self) -> tuple[TailDamage, ...]:
        """What was found to be damaged when it was opened."""
        ...

    def end(self) -> None: ...


class SqliteSubject:
    def __init__(self, bytes_max: int | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="heliograph-vault-"))
        self._bytes_max = bytes_max
        self._open(self.folder / "0")

    def _open(self, place: Path) -> None:
        self.backend = SqliteVault(Vault(name="v", place=str(place), bytes_max=self._bytes_max))
        self.backend.open()

    def commit(self, commits: Sequence[Sequence[Change]]) -> list[Committed]:
        done = self.backend.commit(commits)
        self.backend.tidy(busy=False)
        return done

    def read(self, query: Query) -> Found:
        return self.backend.read(query)

    def reopen(self) -> None:
        self.backend.close()
        self.backend.open()

    def crash(self, unfinished: Sequence[Sequence[Change]]) -> None:
        """The files as they are in the middle of a transaction are what a killed process leaves."""
        self.backend.query("BEGIN IMMEDIATE")
        self.backend._tables.apply(unfinished)
        left = self.backend.path.parent
        found = left.with_name(str(int(left.name) + 1))
        shutil.copytree(left, found)
        self.backend.close()
        self._open(found)

    def damage(self, log: str, position: int) -> None:
        where = "log = (SELECT id FROM logs WHERE name = ?) AND position = ?"
        self.backend.query(f"UPDATE runs SET data = zeroblob(1) WHERE {where}", (log.encode(), position))

    def damage_key(self, key: str) -> None:
        self.backend.query("UPDATE pairs SET crc = crc + 1 WHERE key = ?", (key.encode(),))

    def damaged(self) -> tuple[TailDamage, ...]:
        return self.backend.check_tail()

    def end(self) -> None:
        self.backend.close()
        shutil.rmtree(self.folder)


class PostgresSubject:
    def __init__(self, server: Server, bytes_max: int | None = None) -> None:
        from heliograph.live.vaults.postgres import PostgresVault

        self.name = f"t{next(NUMBERS)}"
        self.backend = PostgresVault(Vault(name=self.name, place=server.url, bytes_max=bytes_max))
        self.backend.open()

    def commit(self, commits: Sequence[Sequence[Change]]) -> list[Committed]:
        return self.backend.commit(commits)

    def read(self, query: Query) -> Found:
        return self.backend.read(query)

    def reopen(self) -> None:
        self.backend.close()
        self.backend.open()

    def crash(self, unfinished: Sequence[Sequence[Change]]) -> None:
        self.backend.query("BEGIN")
        self.backend._tables.apply(unfinished)
        self.reopen()

    def damage(self, log: str, position: int) -> None:
        where = "log = (SELECT id FROM logs WHERE name = ?) AND position = ?"
        self.backend.query(f"UPDATE runs SET data = '\\x00'::bytea || data WHERE {where}", (log.encode(), position))

    def damage_key(self, key: str) -> None:
        self.backend.query("UPDATE pairs SET crc = crc + 1 WHERE key = ?", (key.encode(),))

    def damaged(self) -> tuple[TailDamage, ...]:
        return self.backend.check_tail()

    def end(self) -> None:
        self.backend.query(f"DROP SCHEMA heliograph_{self.name} CASCADE")
        self.backend.close()


class Keeper(Recorder):
    """A machine with a vault, which does what a test wants."""

    def tell(self, command: Any, now: int) -> None:
        if callable(command):
            super().tell(command, now)
        else:
            self._note(now, "vault", command)


class SimSubject:
    def __init__(self, bytes_max: int | None = None, seed: int = 1) -> None:
        self.world = World(seed, network=CALM)
        vault = Vault(name="v", bytes_max=bytes_max)
        self.host = self.world.add(
            "keeper", lambda _: Node("keeper", {"it": Keeper()}, pipes=(), listeners={}, vaults={"it": vault})
        )
        self._start()

    def _start(self) -> None:
        self.world.start(self.host)
        run(self.world, 1)

    @property
    def machine(self) -> Keeper:
        machine = self.host.seats[0].machine
        assert isinstance(machine, Keeper)
        return machine

    @property
    def disk(self) -> Any:
        return self.world.disks.all["keeper", "v"]

    def ask(self, call: Any) -> list[int]:
        """The tickets of what a machine asks for; nothing has been answered yet."""
        tickets: list[int] = []
        self.host.tell(self.host.seats[0], lambda machine, now: tickets.extend(call(machine.outbox)))
        for _ in range(100):
            run(self.world, 0.000_01)
            if tickets:
                break
        assert tickets, "the machine did not get so far"
        return tickets

    def answers(self, tickets: list[int]) -> list[Any]:
        run(self.world, 1)
        found = {ticket: what for _, ticket, what in (*self.machine.of("done"), *self.machine.of("failed"))}
        return [found[ticket] for ticket in tickets]

    def commit(self, commits: Sequence[Sequence[Change]]) -> list[Committed]:
        answers = self.answers(self.ask(lambda outbox: [outbox.commit(changes) for changes in commits]))
        for answer in answers:
            if isinstance(answer, Reason):
                raise VaultError(answer, "as the disk said")
        return answers

    def read(self, query: Query) -> Found:
        (answer,) = self.answers(self.ask(lambda outbox: [outbox.read(query)]))
        assert not isinstance(answer, Reason)
        return answer  # type: ignore[no-any-return]

    def reopen(self) -> None:
        self.host.stop()
        self._start()

    def crash(self, unfinished: Sequence[Sequence[Change]]) -> None:
        if unfinished:
            self.ask(lambda outbox: [outbox.commit(changes) for changes in unfinished])
        self.world.crash(self.host)
        self._start()

    def damage(self, log: str, position: int) -> None:
        self.disk.contents.logs[log].damaged[position] = None

    def damage_key(self, key: str) -> None:
        self.disk.contents.damaged_keys[key] = None

    def damaged(self) -> tuple[TailDamage, ...]:
        opened = self.machine.of("vault")[-1][1]
        assert isinstance(opened, VaultOpened)
        return opened.damaged

    def end(self) -> None:
        assert self.world.faults() == []


def dump(subject: Subject) -> dict[str, Any]:
    """Everything in a vault, read in many small pages."""
    logs = []
    for log in pages_of_logs(subject):
        runs: list[Any] = []
        position = 0
        while True:
            found = subject.read(Read(log.name, position, bytes_max=20))
            assert isinstance(found, RunsRead)
            assert found.log == log
            if not found.runs:
                break
            runs += found.runs
            position = runs[-1].next
        logs.append((log, runs))
    return {"logs": logs, "keys": pages_of_keys(subject)}


def pages_of_logs(subject: Subject, prefix: str = "") -> list[Any]:
    logs: list[Any] = []
    more = True
    while more:
        page = subject.read(ReadLogs(prefix, logs[-1].name if logs else None, count_max=2))
        assert isinstance(page, LogsRead)
        logs += page.logs
        more = page.more
    return logs


def pages_of_keys(subject: Subject, prefix: str = "") -> list[tuple[str, bytes | None]]:
    pairs: list[tuple[str, bytes | None]] = []
    more = True
    while more:
        page = subject.read(ReadKeys(prefix, pairs[-1][0] if pairs else None, bytes_max=12))
        assert isinstance(page, KeysRead)
        pairs += page.pairs
        more = page.more
    return pairs
