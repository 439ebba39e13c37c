"""The notebook examples/pipeline.ipynb runs from its first cell to its last, and each cell shows what it says.

Its cells run in this process and in the tests' session, as Jupyter would run them: the value of a last expression is
the cell's output.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.live.processes import Process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[2] / "examples" / "pipeline.ipynb"


def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    return found


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell. The value of its last line, if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), names)
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names) if last is not None else None


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.req("S9", "O2")
def test_the_notebook_runs_from_its_first_cell_to_its_last(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    place = ("--store", "--store-place", str(tmp_path / "kept"), "--log-format", "json", "--listen", "127.0.0.1:0")
    names: dict[str, Any] = {}
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(tmp_path / "archive"))
    with Process(tmp_path, *place, "--no-discovery") as broker:
        monkeypatch.setenv("HELIOGRAPH_URL", f"heliograph://127.0.0.1:{broker.port}")
        shown = [run("".join(cell["source"]), names) for cell in cells() if cell["cell_type"] == "code"]
    warmth, matched = (value for value in shown if hasattr(value, "to_dict"))
    assert warmth.to_dict("list") == {
        "topic": ["halls/0", "halls/1", "halls/2"],
        "events": [100, 100, 100],
        "degrees": [24.5, 24.5, 24.5],
    }
    hot = sum(15 + number % 20 > 30 for number in range(300))
    assert dict(zip(matched["subscription"], matched["count"], strict=True)) == {"first hall": 100, "hot": hot}
    assert "halls/2" in shown[-1].read_text("utf-8")


def test_the_notebook_holds_no_outputs() -> None:
    assert [cell["id"] for cell in cells() if cell.get("outputs") or cell.get("execution_count")] == []
