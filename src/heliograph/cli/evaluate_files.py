"""Files of measurements: what `heliograph evaluate … --save FOLDER` writes for the pipeline.

In:    rows of measurements, a folder.
Out:   one file, a JSON object per line.
State: none.
Not here: what rows say (evaluation/measurements.py), what is drawn from them (pipeline/evaluation.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_measurements(rows: list[dict[str, Any]], folder: Path, name: str) -> Path:
    """Write them; the file."""
    import json

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file
