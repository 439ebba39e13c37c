"""The shell of the pipeline: many questions in one session, from a pipe and from a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from heliograph.cli.main import command
from heliograph.cli.pipeline_shell import questions, split
from heliograph.pipeline import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.req("S8")]
SECONDS = 120.0


def asked(*lines: str | type[BaseException]) -> list[str]:
    """The questions in some lines; an exception stands for what a key does."""
    left: Iterator[str | type[BaseException]] = iter([*lines, EOFError])

    def read(prompt: str) -> str:
        line = next(left)
        if isinstance(line, str):
            return line
        raise line

    return list(questions(read))


def test_a_question_ends_with_its_semicolon_wherever_lines_end() -> None:
    assert asked("select 1; select 2;") == ["select 1", "select 2"]
    assert asked("select", "1", ";", "select 2") == ["select\n1", "select 2"]
    assert asked("views", "select 1;", "EXIT;") == ["views", "select 1", "exit"]
    assert asked("select", "views;") == ["select\nviews"]
    assert asked("", "  ", ";;", "") == []


def test_semicolons_in_quotes_and_comments_end_nothing() -> None:
    assert split('select \';\', "a;\\"b", `c;d` -- e;f\n, 1 /* g; */; x') == [
        'select \';\', "a;\\"b", `c;d` -- e;f\n, 1 /* g; */',
        " x",
    ]
    assert asked("select ';", "'; select 2;") == ["select ';\n'", "select 2"]


def test_ctrl_c_forgets_what_was_typed_so_far() -> None:
    assert asked("select", "wrong", KeyboardInterrupt, "select 2;") == ["select 2"]


@pytest.mark.spark
def test_questions_from_a_pipe_are_answered_in_one_session_until_one_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "stop", lambda: None)  # the tests' session goes on
    root = str(tmp_path / "archive")
    write_deltalake(f"{root}/numbers", pa.table({"offset": [1, 2, 3]}))
    typed = "views\nselect max(offset) as most\nfrom numbers; select offset from numbers order by 1;\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed + "select 1 as last"))
    command()(["pipeline", "shell", "--tables", root, "--json"], standalone_mode=False)
    out, told = capsys.readouterr()
    answers = [json.loads(each) for each in out.replace("\n,", ",").replace("\n]", "]").splitlines()]
    assert answers == [
        [{"name": "numbers", "columns": "offset"}],
        [{"most": 3}],
        [{"offset": 1}, {"offset": 2}, {"offset": 3}],
        [{"last": 1}],
    ]
    assert "tables and views: numbers" in told
    monkeypatch.setattr(sys, "stdin", io.StringIO("select offset from numbers; select nothing; select 7;"))
    with pytest.raises(SystemExit) as ended:
        command()(["pipeline", "shell", "--tables", root, "--limit", "2"], standalone_mode=False)
    out, told = capsys.readouterr()
    assert ended.value.code == 1
    assert out.splitlines() == ["offset", "1", "2"]
    assert "there are more than these 2 rows" in told
    assert "`nothing` cannot be resolved" in told


class Terminal:
    """A shell in a terminal of its own, as a person has it."""

    def __init__(self, root: str, state: Path) -> None:
        words = [sys.executable, "-m", "heliograph.cli", "pipeline", "shell", "--tables", root]
        self._master, slave = pty.openpty()
        environment = os.environ | {"HELIOGRAPH_STATE_DIR": str(state), "TERM": "xterm", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            words, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, text: str) -> str:
        """What is shown up to a text, which is then behind us."""
        end = monotonic() + SECONDS
        while text not in self.seen:
            assert monotonic() < end, self.seen
            if select.select([self._master], [], [], 1.0)[0]:
                try:
                    self.seen += os.read(self._master, 65_536).decode(errors="replace")
                except OSError:  # the other end is closed
                    assert text in self.seen, self.seen
        before, _, self.seen = self.seen.partition(text)
        return before

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)


@pytest.mark.spark
@pytest.mark.live
@pytest.mark.sweep
def test_on_a_terminal_ctrl_c_ends_a_question_and_ctrl_d_the_shell(tmp_path: Path) -> None:
    root = str(tmp_path / "archive")
    write_deltalake(f"{root}/numbers", pa.table({"offset": [1, 2, 3]}))
    shell = Terminal(root, tmp_path / "state")
    try:
        shell.until("sql> ")
        shell.type("select 40 + 2 as answer;\n")
        assert "42" in shell.until("sql> ").split("answer;")[-1]
        shell.type("select nothing;\n")
        assert "cannot be resolved" in shell.until("sql> ")
        shell.type("select count(*) from range(1000000000000) where id % 7 = rand();\n")
        shell.until("tasks done")  # what Spark does is told meanwhile
        os.killpg(shell.process.pid, signal.SIGINT)
        shell.until("ended")
        shell.until("sql> ")
        shell.type("select count(*) + 1000 from numbers;\n")
        assert "1003" in shell.until("sql> ")
        shell.type("\x04")
        assert shell.process.wait(SECONDS) == 0
    finally:
        shell.close()
    history = (tmp_path / "state" / "pipeline-history").read_text("utf-8").splitlines()
    assert "select nothing;" in history
    assert (tmp_path / "state" / "pipeline-history").stat().st_mode & 0o077 == 0
