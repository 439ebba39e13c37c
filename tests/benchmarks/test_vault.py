"""vault: both sides write what they count, and the result has them beside each other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks import vault

pytestmark = pytest.mark.live


def test_what_is_counted_was_written(tmp_path: Path) -> None:
    assert asyncio.run(vault._commit(str(tmp_path), 250, 4, 0.2)) > 0
    assert (tmp_path / "bench.vault").stat().st_size > 250 * vault.BYTES
    assert vault._flush(tmp_path / "file", 10, 0.05) > 0
    assert (tmp_path / "file").stat().st_size % (10 * vault.BYTES) == 0


def test_the_result_has_figures_and_ratios_of_every_case() -> None:
    rounds = [
        {"round": 1, "case": case, "system": system, vault.FIGURE: figure}
        for case in vault.CASES
        for system, figure in ((vault.OURS, 100.0), (vault.LIMIT, 400.0))
    ]
    result = vault._result(rounds)
    assert result["ratios"] == {case: {vault.LIMIT: 0.25} for case in vault.CASES}
    assert "window_1000" in vault.show(result)
