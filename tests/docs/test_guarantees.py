"""Every guarantee of stores names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/guarantees.md").read_text()


def test_every_guarantee_has_a_test_that_exists() -> None:
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", PAGE)
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "`tests/" in line]
    assert len(named) == len(rows) >= 20
    missing = [name for file, name in named if f"def {name}(" not in (ROOT / file).read_text()]
    assert missing == []
