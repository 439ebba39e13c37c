"""The demo's pipeline: what flowed becomes tables, questions and a picture, on Spark.

In:    a folder for a broker with a store and for the tables.
Out:   lines on standard output, as things happen; what was measured, in the report.
State: the broker's process and the Spark session; both end with the scene, whatever happens.
Not here: the jobs (../../pipeline/).
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from shutil import rmtree
from time import monotonic
from typing import Any

from heliograph.cli.demo.report import Report
from heliograph.cli.network_processes import NetworkProcesses
from heliograph.cli.network_state import STORES
from heliograph.live.connect import connect
from heliograph.topology.process_network import generated

ROWS = 3_000
REPORT = "demo-report.html"
TOPIC = "readings"
WANTED = [("hot", f"{TOPIC}/#", "predicates", "degrees > 25"), ("hall 1", f"{TOPIC}/hall-1", "", "")]


async def play_pipeline(folder: Path, report: Report) -> None:
    """Capture, archive, two analyses and a picture."""
    report.begin("The data pipeline: heliograph pipeline archive, sql, match, report")
    if importlib.util.find_spec("pyspark") is None:
        print("   Spark is not installed: pip install 'heliograph[spark]' (about 1 GB) brings this scene")
        return
    network = NetworkProcesses(generated(1).with_stores(1), folder, bdn=False)
    try:
        await network.start(lambda text: None)
        await _capture(network.brokers[0].url)
        await asyncio.to_thread(_analyse, network.brokers[0].url, folder, report)
    finally:
        network.stop(keep_logs=False)
        rmtree(folder / STORES, ignore_errors=True)


async def _capture(url: str) -> None:
    async with connect(url, name="plant", entity="", token="") as plant:
        for number in range(ROWS):
            headers = {"degrees": 15 + number % 20}
            await plant.publish(f"{TOPIC}/hall-{number % 3}", "x", headers=headers, reliable=True, wait=False)
        await plant.flush()
    print(f"   a store keeps {ROWS:,} readings; starting Spark (some seconds) …", flush=True)


def _write_report(spark: Any, tables: str) -> Path:
    """A report of the tables, in this user's folder for state, since the demo's own folder goes with it."""
    from heliograph.live.private_file import state_dir
    from heliograph.pipeline.report.report import write_report

    page = state_dir() / REPORT
    page.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_report(spark, tables, page)
    return page


def _analyse(url: str, folder: Path, report: Report) -> None:
    from heliograph.pipeline import evaluation, jobs
    from heliograph.pipeline.answers import all_rows
    from heliograph.pipeline.session import session, stop

    began = monotonic()
    tables = str(folder / "tables")
    try:
        spark = session("local[2]", settings={"spark.sql.shuffle.partitions": "2"})
        options = {"url": url, "subscribe": f"{TOPIC}/#", "startingOffsets": "earliest"}
        kept = jobs.keep(spark, tables, options, follow=False, seconds=1, say=lambda text: None)["tables"]
        print(f"   archived as a Delta table: {kept['events']:,} rows", flush=True)
        rows = all_rows(jobs.ask(spark, tables, "select topic, events from topics order by topic"))
        print("   topics: " + ", ".join(f"{row['topic']} {row['events']:,}" for row in rows), flush=True)
        matched = jobs.match(spark, tables, WANTED, "", "", "")["subscriptions"]
        told = ", ".join(f"{row['subscription']}: {row['events']:,}" for row in matched)
        print(f"   what subscriptions would have got from the past: {told}", flush=True)
        measured = [
            {"experiment": "readings", "metric": "events", "unit": "", "ours": row["events"], "paper": None,
             "parameters": json.dumps({"hall": row["topic"].rpartition("-")[2]})}
            for row in rows
        ]  # fmt: skip
        pictures = evaluation.draw(measured, folder)
        page = _write_report(spark, tables)
        print(f"   a report to look at: {page}", flush=True)
    finally:
        stop()
    expected = sum(15 + number % 20 > 25 for number in range(ROWS))
    report.check(kept["events"] == ROWS, f"pipeline: {kept['events']} of {ROWS} rows were archived")
    report.check(matched[0]["events"] == expected, "pipeline: the past was not matched as it was")
    report.check(bool(pictures), "pipeline: no picture was drawn")
    report.check("<svg" in page.read_text("utf-8"), "pipeline: the report has no figure")
    report.add("look at", str(page))
    took = monotonic() - began
    report.add("pipeline", f"{ROWS:,} publications to a table, SQL, two subscriptions over the past, {took:.0f} s")
