"""The live thread of a vault: groups, order, failures, stops. Rule 16 of the contract, with a real driver."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from heliograph.errors import Reason
from heliograph.live import disk as module
from heliograph.live.loop import Driver
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.notes import Note, VaultFound, VaultNarrowed, VaultRefused
from heliograph.vault import (
    Append,
    Change,
    Committed,
    Found,
    LogsRead,
    Put,
    Query,
    Read,
    ReadLogs,
    RunsRead,
    TailDamage,
    Vault,
    VaultFailed,
    VaultOpened,
)
from tests.live.machines import LOOPS, Recorder, until
from tests.vaults.postgres import Server
from tests.vaults.subjects import NUMBERS

pytestmark = pytest.mark.live


@pytest.fixture(params=LOOPS, ids=["fast", "plain"])
def run(request: pytest.FixtureRequest) -> Any:
    return request.param


class Keeper(Recorder):
    """A machine with a vault."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def tell(self, command: Any, now: int) -> None:
        if isinstance(command, VaultOpened | VaultFailed):
            self.told.append(command)
        else:
            super().tell(command, now)


class Stubborn(Keeper):
    """Asks again, at once, for a commit that failed."""

    def failed(self, ticket: int, reason: Reason, now: int) -> None:
        super().failed(ticket, reason, now)
        self.outbox.commit([Put(f"again {ticket}", b"")])


class Slow:
    """A back end that does as the test says: a list of groups, and a gate before each."""

    def __init__(self) -> None:
        self.groups: list[list[Sequence[Change]]] = []
        self.reads: list[Query] = []
        self.gate = Event()
        self.entered = Event()
        self.refuse: list[Reason | None] = []  # one per group
        self.refuse_open: list[Reason] = []  # one per attempt
        self.closed = 0
        self.narrowed = False

    def open(self) -> int:
        if self.refuse_open:
            raise VaultError(self.refuse_open.pop(0), "as told")
        return 0

    def check_tail(self) -> tuple[TailDamage, ...]:
        return ()

    def commit(self, commits: Sequence[Sequence[Change]]) -> list[Committed]:
        self.entered.set()
        assert self.gate.wait(10)
        reason = self.refuse.pop(0) if self.refuse else None
        if reason is not None:
            raise VaultError(reason, "as told")
        self.groups.append(list(commits))
        return [Committed((len(self.groups),)) for _ in commits]

    def read(self, query: Query) -> Found:
        self.reads.append(query)
        if query == Read("damaged"):
            raise VaultError(Reason.VAULT_DAMAGED, "as told")
        return LogsRead((), more=False)

    def tidy(self, busy: bool) -> None:
        pass

    def check(self) -> list[str]:
        return []

    def compact(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


@asynccontextmanager
async def keeping(machine: Keeper, vault: Vault, notes: list[Note] | None = None) -> Any:
    heard = None if notes is None else (lambda name, note: notes.append(note))
    driver = Driver({"m": machine}, heard=heard)
    driver.start()
    await driver.open_vault("m", vault)
    try:
        yield driver
    finally:
        await driver.stop()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    backend = Slow()
    monkeypatch.setattr(module, "make_backend", lambda vault: backend)
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    return backend


def put(*names: str) -> Any:
    """Commits of one key each, in one take."""
    return lambda machine: [machine.outbox.commit([Put(name, b"")]) for name in names]


def names(groups: list[list[Sequence[Change]]]) -> list[list[str]]:
    return [[change.key for changes in group for change in changes] for group in groups]  # type: ignore[union-attr]


VAULT = Vault(name="v")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_machine_finds_what_it_committed_when_it_is_started_again(
    run: Any, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server: Server | None = request.getfixturevalue("postgres") if kind == "postgres" else None
    vault = Vault(name=f"d{next(NUMBERS)}", place=str(tmp_path) if server is None else server.url)

    async def main() -> None:
        for life in range(3):
            machine = Keeper()
            async with keeping(machine, vault) as driver:
                assert isinstance(machine.told[0], VaultOpened)
                driver.tell("m", lambda m: (m.outbox.read(ReadLogs()), m.outbox.read(Read("log"))))
                await until(lambda machine=machine: len(machine.results) == 2)
                logs, found = machine.results[0][1], machine.results[1][1]
                assert isinstance(logs, LogsRead)
                assert isinstance(found, RunsRead)
                assert [run.data for run in found.runs] == [b"%d" % n for n in range(life)]
                assert [log.next for log in logs.logs] == ([2 * life] if life else [])
                driver.tell("m", lambda m, life=life: m.outbox.commit([Append("log", b"%d" % life, 2, 0, 0)]))
                await until(lambda machine=machine: len(machine.results) == 3)
                assert machine.results[2][1] == Committed((2 * life,))

    run(main())


def test_what_waits_is_one_group_and_is_answered_in_order(run: Any, slow: Slow) -> None:
    async def main() -> None:
        machine = Keeper()
        async with keeping(machine, VAULT) as driver:
            driver.tell("m", put("first"))
            await until(slow.entered.is_set)
            for name in ("a", "b", "c"):
                driver.tell("m", put(name))
            slow.gate.set()
            await until(lambda: len(machine.results) == 4)
        assert names(slow.groups) == [["first"], ["a", "b", "c"]]
        assert [ticket for ticket, _ in machine.results] == [1, 2, 3, 4]
        assert slow.closed == 1

    run(main())


def test_reads_and_groups_take_turns(run: Any, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READS_PER_TURN", 2)
    monkeypatch.setattr(module, "GROUP_COMMITS_MAX", 1)

    async def main() -> None:
        machine = Keeper()
        async with keeping(machine, VAULT) as driver:
            driver.tell("m", put("first"))
            await until(slow.entered.is_set)
            driver.tell("m", put("a", "b"))
            driver.tell("m", lambda m: [m.outbox.read(ReadLogs()) for _ in range(5)])
            slow.gate.set()
            await until(lambda: len(machine.results) == 8)
        kinds = ["c" if isinstance(result, Committed) else "r" for _, result in machine.results]
        assert "".join(kinds) == "ccrrcrrr"

    run(main())


def test_when_a_commit_fails_so_do_those_asked_for_before_the_machine_knew(run: Any, slow: Slow) -> None:
    slow.refuse = [Reason.VAULT_FULL]

    async def main() -> None:
        machine = Stubborn()
        async with keeping(machine, VAULT) as driver:
            driver.tell("m", put("first"))
            await until(slow.entered.is_set)
            driver.tell("m", put("second", "third"))
            slow.gate.set()
            await until(lambda: len(machine.results) == 6)
        full = Reason.VAULT_FULL
        assert machine.results[:3] == [(1, full), (2, full), (3, full)]
        assert [key for group in names(slow.groups) for key in group] == ["again 1", "again 2", "again 3"]
        assert machine.told == [VaultOpened("v", 0)]

    run(main())


@pytest.mark.req("O6")
def test_a_vault_that_others_could_read_is_noted(run: Any, tmp_path: Path) -> None:
    before = SqliteVault(Vault(name="v", place=str(tmp_path)))
    before.open()
    before.close()
    before.path.chmod(0o640)
    notes: list[Note] = []

    async def main() -> None:
        async with keeping(Keeper(), Vault(name="v", place=str(tmp_path)), notes):
            pass

    run(main())
    assert notes == [VaultNarrowed("v")]


def test_a_lost_vault_is_told_and_opened_again(run: Any, slow: Slow) -> None:
    slow.refuse = [Reason.VAULT_FAILED]
    slow.gate.set()
    notes: list[Note] = []

    async def main() -> None:
        machine = Keeper()
        async with keeping(machine, VAULT, notes) as driver:
            slow.refuse_open = [Reason.VAULT_LOCKED, Reason.VAULT_LOCKED]
            driver.tell("m", put("lost"))
            await until(lambda: len(machine.told) == 4)
            driver.tell("m", put("kept"))
            await until(lambda: len(machine.results) == 2)
        failed, locked = Reason.VAULT_FAILED, Reason.VAULT_LOCKED
        opened = VaultOpened("v", 0)
        assert machine.told == [
            opened,
            VaultFailed("v", failed, "as told"),
            VaultFailed("v", locked, "as told"),
            opened,
        ]
        assert machine.results == [(1, failed), (2, Committed((1,)))]
        assert notes == [
            VaultRefused("v", "as told", failed),
            VaultRefused("v", "as told", locked),
            VaultFound("v"),
        ]

    run(main())


def test_what_does_not_open_is_told_and_everything_asked_of_it_fails(run: Any, slow: Slow) -> None:
    slow.refuse_open = [Reason.VAULT_NEWER] * 2

    async def main() -> None:
        machine = Keeper()
        driver = Driver({"m": machine})
        driver.start()
        assert await driver.open_vault("m", VAULT) is Reason.VAULT_NEWER
        driver.tell("m", put("a"))
        driver.tell("m", lambda m: m.outbox.read(ReadLogs()))
        await until(lambda: len(machine.results) == 2)
        await asyncio.sleep(0.05)
        await driver.stop()
        assert machine.results == [(1, Reason.VAULT_NEWER), (2, Reason.VAULT_NEWER)]
        assert len(slow.refuse_open) == 1, "it does not pass, so it is not tried again"

    run(main())


def test_a_damaged_read_fails_alone(run: Any, slow: Slow) -> None:
    async def main() -> None:
        machine = Keeper()
        async with keeping(machine, VAULT) as driver:
            driver.tell("m", lambda m: [m.outbox.read(query) for query in (Read("damaged"), ReadLogs())])
            await until(lambda: len(machine.results) == 2)
        assert machine.results == [(1, Reason.VAULT_DAMAGED), (2, LogsRead((), more=False))]
        assert machine.told == [VaultOpened("v", 0)]

    run(main())


def test_what_waits_beyond_the_limit_fails_in_its_turn(run: Any, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMITS_MAX", 2)
    monkeypatch.setattr(module, "READS_MAX", 1)

    async def main() -> None:
        machine = Keeper()
        async with keeping(machine, VAULT) as driver:
            driver.tell("m", put("first"))
            await until(slow.entered.is_set)
            driver.tell("m", put("a", "b", "over", "after"))
            driver.tell("m", lambda m: [m.outbox.read(ReadLogs()) for _ in range(2)])
            slow.gate.set()
            await until(lambda: len(machine.results) == 7)
        commits = [(ticket, result) for ticket, result in machine.results if ticket <= 5]
        over = Reason.REQUESTS_OVER_LIMIT
        assert commits == [(1, Committed((1,))), (2, Committed((2,))), (3, Committed((2,))), (4, over), (5, over)]
        assert dict(machine.results)[7] is over
        assert names(slow.groups) == [["first"], ["a", "b"]]

    run(main())


def test_a_stop_commits_what_waits_and_tells_the_machine(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        machine = Keeper()
        vault = Vault(name="v", place=str(tmp_path))
        async with keeping(machine, vault) as driver:
            driver.tell("m", lambda m: [m.outbox.commit([Append("log", b"x", 1, 0, 0)]) for _ in range(500)])
            assert machine.results == []
        assert [result.positions for _, result in machine.results] == [(n,) for n in range(500)]
        assert not (tmp_path / "v.vault-wal").exists(), "a clean close leaves one file"

    run(main())


def test_a_bug_in_a_back_end_ends_the_node(run: Any, slow: Slow) -> None:
    slow.gate.set()
    slow.commit = lambda commits: 1 // 0  # type: ignore[method-assign,assignment,return-value]

    async def main() -> None:
        machine = Keeper()
        crashes: list[BaseException] = []
        driver = Driver({"m": machine}, crashed=lambda name, error: crashes.append(error))
        driver.start()
        await driver.open_vault("m", VAULT)
        driver.tell("m", put("a"))
        await until(lambda: crashes)
        assert isinstance(driver.failure, ZeroDivisionError)
        await driver.stop()

    run(main())
