"""What was acknowledged is there after kill -9, whole and in order, with either back end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from heliograph.live.vaults.choice import make_backend
from heliograph.vault import KeysRead, Read, ReadKeys, Run, RunsRead, Vault
from tests.vaults.subjects import NUMBERS

pytestmark = pytest.mark.live


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_what_was_acknowledged_is_there_after_kill_9(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = str(tmp_path) if kind == "sqlite" else request.getfixturevalue("postgres").url
    vault = Vault(name=f"k{next(NUMBERS)}", place=place)
    random = Random(7)
    found = 0
    for _ in range(5 if kind == "sqlite" else 3):
        found = kill_one(vault, random, found)
    assert found > 20


def kill_one(vault: Vault, random: Random, before: int) -> int:
    """Let a process commit, kill it, and look; how many records there are."""
    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.vaults.writer", vault.name, vault.place],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert writer.stdout is not None
    for _ in range(random.randrange(1, 40)):
        assert writer.stdout.readline()
    os.kill(writer.pid, 9)
    said = writer.stdout.read().split(b"\n")[:-1]  # whole lines that were on their way
    writer.wait()
    writer.stdout.close()

    backend = make_backend(vault)
    backend.open()
    answer, pairs = backend.read(Read("log", bytes_max=1 << 20)), backend.read(ReadKeys())
    assert isinstance(answer, RunsRead)
    assert isinstance(pairs, KeysRead)
    backend.close()
    kept = [run.data for run in answer.runs if isinstance(run, Run)]
    assert kept == [b"%d" % number for number in range(len(kept))]
    assert pairs.pairs == (("count", b"%d" % len(kept)),), "a commit is there in part"
    assert len(kept) >= int(said[-1] if said else before)
    return len(kept)
