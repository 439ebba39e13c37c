"""`python -m tests.browser.picture FILE`: the picture of a report, for the README.

In:    where to write a PNG; Chromium (`make browser`) and Spark.
Out:   the top of the report of a network of four brokers that lived for half a minute (tests/pipeline/lived.py).
State: the network, Spark and the browser, which end with the command.
Not here: the report (pipeline/report/), tests of it (tests/pipeline/test_report_page.py).
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from heliograph.pipeline import jobs
from heliograph.pipeline.report.report import write_report
from heliograph.pipeline.session import session, stop
from tests.browser.opened import opened, shown
from tests.pipeline.lived import live

WIDTH, HEIGHT = 900, 1_310


def report(folder: Path) -> Path:
    """A network, its archive, and the report of it."""
    out = folder / "network.html"
    spark = session("local[2]", settings={"spark.sql.shuffle.partitions": "2"})

    async def work() -> None:
        async with live(folder) as life:
            options = {"url": life.url, "entity": "local-admin", "tokenFile": str(life.token)}
            options |= {"subscribe": "#,System/#", "startingOffsets": "earliest"}
            root = str(folder / "network")
            await asyncio.to_thread(jobs.keep, spark, root, options, follow=False, seconds=1, say=print)
            await asyncio.to_thread(write_report, spark, root, out)

    try:
        asyncio.run(work())
    finally:
        stop()
    return out


def main(file: str) -> None:
    """Make the picture."""
    with TemporaryDirectory(prefix="heliograph-picture-") as folder:
        os.environ["HELIOGRAPH_RUNTIME_DIR"] = str(Path(folder) / "run")
        out = report(Path(folder))
        with opened() as browser, shown(browser, out, WIDTH) as (page, _):
            page.screenshot(path=file, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT})
            if len(sys.argv) > 2:  # the whole page, to look at
                page.screenshot(path=sys.argv[2], full_page=True)


if __name__ == "__main__":
    main(sys.argv[1])
