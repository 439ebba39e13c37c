"""A report of an archive, written to a file.

In:    a session, the folder of an archive, where to write.
Out:   the file, complete or not at all.
State: none.
Not here: what it says (content.py), how it looks (page.py), the command (cli/pipeline_report.py).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.errors import UsageError
from heliograph.pipeline.report.content import ReportContent, collect
from heliograph.pipeline.report.page import page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_report(
    spark: SparkSession, root: str, out: Path, *, since: str = "", until: str = "", requests: str = ""
) -> ReportContent:
    """Ask, draw and write. An older report in the same place is replaced at the end."""
    if not out.absolute().parent.is_dir():
        raise UsageError(f"{out.parent} is not a folder")
    content = collect(spark, root, datetime.now(UTC), since=since, until=until, file=requests)
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        unfinished.write_text(page(content), "utf-8", errors="backslashreplace")
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
    return content
