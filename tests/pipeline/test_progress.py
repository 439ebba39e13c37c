"""What is told while Spark works, and while it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import TYPE_CHECKING

import pytest

from heliograph.pipeline import progress
from heliograph.pipeline.progress import StageNow, Stages, running, span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.req("S8")


def test_rows_their_rate_and_the_time_left_are_told() -> None:
    steps = Stages()
    assert steps.text([StageNow(1, 8, 0, 0)], 100.0) == "", "a short job needs no line"
    assert steps.text([StageNow(1, 8, 0, 50_000)], 102.0) == "0 of 8 tasks done, 50,000 rows, 25,000 rows/s"
    assert steps.text([StageNow(1, 8, 2, 100_000)], 104.0) == (
        "2 of 8 tasks done, 100,000 rows, 25,000 rows/s, about 12 s left"
    )
    assert steps.text([StageNow(2, 4, 0, 0)], 105.0).startswith("0 of 4 tasks done, 100,000 rows"), "of both stages"
    assert steps.text([], 106.0) == ""
    assert steps.text([StageNow(3, 4, 0, 10)], 120.0) == "", "another step begins"
    assert steps.text([StageNow(3, 4, 0, 30)], 122.0) == "0 of 4 tasks done, 30 rows, 10 rows/s"


def test_the_rate_is_that_of_the_last_seconds_and_the_slowest_stage_says_how_long() -> None:
    steps = Stages()
    for second in range(60):
        text = steps.text([StageNow(1, 100, second, 1_000 * min(second, 30)), StageNow(2, 10, 1, 0)], float(second))
    assert text == "60 of 110 tasks done, 30,000 rows, about 9 min left"


@pytest.mark.parametrize(
    ("seconds", "told"), [(12.4, "12 s"), (89.0, "89 s"), (90.0, "2 min"), (5_399.0, "90 min"), (7_200.0, "2 h")]
)
def test_a_time_is_told_as_people_say_it(seconds: float, told: str) -> None:
    assert span(seconds) == told


def test_on_a_terminal_one_line_is_rewritten_and_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = os.openpty()
    monkeypatch.setattr(progress, "TICK_S", 0.01)
    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    with os.fdopen(inner, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress.progress(print):
            seen = b""
            while seen.count(b"\r\x1b[Kstarting Spark \xe2\x80\xa6") < 3:
                seen += os.read(outer, 1_000)
            print("a remark", file=sys.stderr, flush=True)
        assert sys.stderr is terminal
        print("the end", file=terminal, flush=True)
        while b"the end" not in seen:
            seen += os.read(outer, 1_000)
    os.close(outer)
    assert b"\r\x1b[Ka remark\r\n" in seen, "the line went before the remark came"
    assert seen.endswith((b"\r\x1b[Kthe end\r\n", b"a remark\r\nthe end\r\n"))


def test_elsewhere_lines_stay_and_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TICK_S", 0.001)
    monkeypatch.setattr(progress, "FIRST_S", 0.01)
    monkeypatch.setattr(progress, "MINUTE_S", 0.02)
    told: list[str] = []
    enough = Event()

    def say(text: str) -> None:
        told.append(text)
        if len(told) == 2:
            enough.set()

    with progress.progress(say):
        assert enough.wait(60)
    assert all("still starting Spark" in line for line in told)


@pytest.mark.spark
def test_stages_that_run_are_seen_with_their_tasks(spark: SparkSession, tmp_path: Path) -> None:
    go, rows = tmp_path / "go", spark.sparkContext.parallelize(range(3), 3)

    def wait(_: int) -> None:
        while not go.exists():
            sleep(0.01)

    work = Thread(target=lambda: rows.foreach(wait))
    work.start()
    while not (stages := running(spark)):
        assert work.is_alive()
    go.touch()
    work.join()
    assert [(stage.tasks, stage.done) for stage in stages] == [(3, 0)]
    while running(spark):
        sleep(0.01)
