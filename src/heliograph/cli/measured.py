"""Measurements in a folder, for `heliograph pipeline evaluate`.

In:    the report of an experiment, and the function that makes rows of it (evaluation/measurements.py).
Out:   one file per run, a JSON object per line.
State: none.
Not here: tables and figures of them (pipeline/evaluation.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Rows = Callable[[dict[str, Any], str, str, int], list[dict[str, Any]]]


def save(name: str, report: dict[str, Any], rows: Rows, folder: Path) -> Path:
    """Write the measurements. Returns the file."""
    import json
    from time import time_ns
    from uuid import uuid4

    import heliograph

    run = uuid4().hex[:12]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{run}.jsonl"
    lines = rows(report, run, heliograph.__version__, time_ns() // 1_000)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return file
