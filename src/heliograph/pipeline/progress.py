"""Progress: what Spark is doing, for a person who waits for it.

In:    a session (its stages, or what a Spark Connect server tells), the clock, how busy this machine is.
Out:   on a terminal one line that is rewritten and disappears; elsewhere a line of its own, at most every MINUTE_S.
State: a thread that ends with the block; the rows of the stages that were seen.
Not here: the session (session.py), what commands print (cli/pipeline.py).

Rows and tasks are of the stages that read something now. With adaptive execution Spark does not know the later stages
of a query, so the time left is that of the current step.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, RLock, Thread
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_S = 0.5
QUIET_S = 1.0  # what takes less needs no line
FIRST_S, MINUTE_S = 30.0, 60.0  # where lines stay: the first, and the pause between two
WINDOW_S = 10.0  # over which the rate is taken
IDLE_S = 2.0  # without a stage for so long, the next one begins a new step
LEFT_S_MIN = 2.0  # less time left is not worth telling
BUSY = 1.5  # processes per core from which the machine is called busy


class StageNow(NamedTuple):
    """One stage that runs: its tasks, how many are done, and the rows that they have read."""

    id: int
    tasks: int
    done: int
    rows: int


class Stages:
    """What is known of the current step, from one look at the stages to the next."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._began = self._seen = -IDLE_S
        self._begun: dict[int, float] = {}
        self._counts: deque[tuple[float, int]] = deque()

    def text(self, stages: list[StageNow], now: float) -> str:
        """A few words on the stages that run now; empty if none has run for QUIET_S."""
        if not stages:
            return ""
        if now - self._seen > IDLE_S:
            self._rows.clear()
            self._begun.clear()
            self._counts.clear()
            self._began = now
        self._seen = now
        for stage in stages:
            self._rows[stage.id] = max(stage.rows, self._rows.get(stage.id, 0))
            self._begun.setdefault(stage.id, now)
        rows = sum(self._rows.values())
        self._counts.append((now, rows))
        while now - self._counts[0][0] > WINDOW_S:
            self._counts.popleft()
        if now - self._began < QUIET_S:
            return ""
        return ", ".join([*_tasks(stages), *self._told_rows(rows), *self._told_left(stages, now)])

    def _told_rows(self, rows: int) -> Iterator[str]:
        if rows:
            yield f"{rows:,} rows"
            (since, before), (until, after) = self._counts[0], self._counts[-1]
            if after > before and until > since:
                yield f"{(after - before) / (until - since):,.0f} rows/s"

    def _told_left(self, stages: list[StageNow], now: float) -> Iterator[str]:
        """The stages that run share the processors, so the slowest one says how long it takes."""
        rests = [
            (now - self._begun[stage.id]) * (stage.tasks - stage.done) / stage.done for stage in stages if stage.done
        ]
        if len(rests) == len(stages) and max(rests) >= LEFT_S_MIN:
            yield f"about {span(max(rests))} left"


def _tasks(stages: list[StageNow]) -> Iterator[str]:
    yield f"{sum(stage.done for stage in stages):,} of {sum(stage.tasks for stage in stages):,} tasks done"


def span(seconds: float) -> str:
    """A time as people say it: 40 s, 3 min, 2 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3_600:.0f} h"


def crowd() -> str:
    """Why it may take longer than usual; empty on a machine that is not busy."""
    try:
        wanting, cores = os.getloadavg()[0], os.cpu_count() or 1
    except OSError:
        return ""
    return f", this machine is busy: {wanting:.0f} processes want its {cores} cores" if wanting > BUSY * cores else ""


@dataclass(slots=True)
class _Line:
    """A line of a terminal that disappears before anything else is written."""

    stream: IO[str]
    lock: RLock
    is_shown: bool = False

    def show(self, text: str) -> None:
        with self.lock:
            width = max(20, _columns(self.stream))
            self.stream.write("\r\x1b[K" + (text if len(text) < width else text[: width - 2] + "…"))
            self.stream.flush()
            self.is_shown = bool(text)

    def clear(self) -> None:
        with self.lock:
            if self.is_shown:
                self.show("")


class _Clearing:
    """A stream that first removes the line from the terminal."""

    def __init__(self, stream: IO[str], line: _Line) -> None:
        self._stream, self._line = stream, line

    def write(self, text: str) -> int:
        with self._line.lock:
            self._line.clear()
            return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Progress:
    """Tells what Spark does, until it is closed."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._steps = Stages()
        self._look: Callable[[], list[StageNow]] | None = None
        self._told: dict[str, list[StageNow]] = {}
        self._began = self._since = monotonic()
        self._next = FIRST_S
        self._closed = Event()
        self._is_hidden = False
        self._line = _Line(sys.stderr, RLock()) if sys.stderr.isatty() else None
        self._thread = Thread(target=self._run, name="progress", daemon=True)

    def watch(self, spark: SparkSession) -> None:
        """From now on, this session's stages."""
        if hasattr(spark, "registerProgressHandler") and not hasattr(spark, "_jsparkSession"):
            spark.registerProgressHandler(self._hear)  # type: ignore[arg-type]  # any function with these parameters
            self._look = self._heard
        else:
            self._look = lambda: running(spark)
        self._restart()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Nothing is told in this block, for example while a question is typed."""
        self._is_hidden = True
        if self._line is not None:
            self._line.clear()
        try:
            yield
        finally:
            self._is_hidden = False
            self._restart()

    def start(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def close(self) -> None:
        """The line disappears."""
        self._closed.set()
        self._thread.join(5 * TICK_S)
        if self._line is not None:
            self._line.clear()

    def _restart(self) -> None:
        self._began, self._next = monotonic(), FIRST_S

    def _run(self) -> None:
        while not self._closed.wait(TICK_S):
            if self._is_hidden:
                continue
            passed = monotonic() - self._began
            if self._line is not None:
                self._rewrite(self._line, self._text(passed))
            elif passed >= self._next:
                self._next += MINUTE_S
                if text := self._text(passed):
                    self._say(f"after {span(passed)}: {text}")

    def _rewrite(self, line: _Line, text: str) -> None:
        with line.lock:
            if self._closed.is_set() or self._is_hidden or not text:
                line.clear()
            else:
                line.show(text)

    def _text(self, passed: float) -> str:
        if self._look is None:
            return f"still starting Spark{crowd()}" if self._line is None else _starting(passed)
        try:
            return self._steps.text(self._look(), monotonic())
        except Exception:  # of Java, which may have ended; the job itself tells that
            return ""

    def _hear(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """What a Spark Connect server tells of one of our operations. It does not tell rows."""
        told = [StageNow(each.stage_id, each.num_tasks, each.num_completed_tasks, 0) for each in stages or ()]
        self._told[operation_id or ""] = [] if done else [each for each in told if each.done < each.tasks]
        if done:
            self._told.pop(operation_id or "", None)

    def _heard(self) -> list[StageNow]:
        return [stage for stages in list(self._told.values()) for stage in stages]


def _starting(passed: float) -> str:
    return "" if passed < QUIET_S else f"starting Spark … {passed:.0f} s{crowd()}"


def running(spark: SparkSession) -> list[StageNow]:
    """The stages that run in the Java of this session."""
    context: Any = spark.sparkContext._jsc.sc()
    stages = context.statusStore().activeStages()
    found = []
    for number in range(stages.size()):
        stage = stages.apply(number)
        found.append(StageNow(stage.stageId(), stage.numTasks(), stage.numCompleteTasks(), stage.inputRecords()))
    return found


@contextmanager
def progress(say: Callable[[str], None]) -> Iterator[Progress]:
    """Tell in this block how a session starts and works."""
    told = Progress(say)
    before = sys.stdout, sys.stderr
    line = told._line
    if line is not None:
        sys.stderr = _Clearing(sys.stderr, line)
        if sys.stdout.isatty():
            sys.stdout = _Clearing(sys.stdout, line)
    told.start()
    try:
        yield told
    finally:
        told.close()
        sys.stdout, sys.stderr = before


def _columns(stream: IO[str]) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except OSError:
        return 80
