"""A store in a real process whose disk stands still: publishers that opted in wait, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from heliograph.broker.config import BrokerConfig, LimitsConfig
from heliograph.live import disk
from heliograph.live.loop import Driver
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.model.origin import origin_of
from heliograph.node import BROKER, build
from heliograph.stores.config import STORE, StoreConfig
from heliograph.vault import Change, Committed, Vault
from heliograph.wire.frames import Kind, control, event
from tests.live.machines import LOCAL, until

COUNT = 200
SECRET = bytes(range(16))


class Gated(SqliteVault):
    """Commits nothing while its gate is closed."""

    def __init__(self, vault: Vault) -> None:
        super().__init__(vault)
        self.gate = Event()
        self.gate.set()

    def commit(self, commits: Sequence[Sequence[Change]]) -> list[Committed]:
        assert self.gate.wait(60)
        return super().commit(commits)


@pytest.mark.live
@pytest.mark.req("N15", "O6")
def test_publishers_that_opted_in_wait_for_a_store_whose_disk_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Gated(Vault(name="s", place=str(tmp_path)))
    monkeypatch.setattr(disk, "make_backend", lambda vault: backend)
    store = StoreConfig(enabled=True, name="s", patterns=("orders/#",), place=str(tmp_path), intake_bytes_max=8 << 20)
    config = BrokerConfig(name="b", limits=LimitsConfig(hold_ms_max=120_000))

    async def main() -> None:
        node = build(config, seed=1, incarnation=1, services=[store])
        driver = Driver(node.machines, node.pipes)
        driver.start()
        assert await driver.open_vault(STORE, node.vaults[STORE]) is None

        def counts() -> dict[str, Any]:
            return driver.report(STORE, "overview")  # type: ignore[no-any-return]

        def is_held() -> bool:
            return any(row["held"] for row in driver.report(BROKER, "links"))

        await until(lambda: counts()["state"] == "open")
        reader, writer = await asyncio.open_connection(*await driver.listen(BROKER, LOCAL))
        hello = {"versions": [1], "secret": SECRET.hex(), "hold": True}
        writer.write(control(Kind.HELLO, 0, json.dumps(hello).encode()))
        await reader.read(1 << 16)
        backend.gate.clear()
        for number in range(1, COUNT + 1):
            writer.write(event(b"orders/1", bytes(100_000), origin_of(SECRET), number))
        await until(is_held)
        report = counts()
        assert report["holds"] == 1
        assert 4 << 20 <= report["waiting_bytes"] < 8 << 20
        backend.gate.set()
        await until(lambda: counts()["next"] == COUNT)
        await until(lambda: not is_held())
        assert (counts()["plain"], counts()["dropped"]) == (COUNT, 0)
        assert driver.report(BROKER, "overview")["dropped"] == 0
        assert driver.failure is None
        writer.close()
        await driver.stop()

    asyncio.run(main())
