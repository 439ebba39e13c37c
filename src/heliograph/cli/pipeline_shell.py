"""`heliograph pipeline shell`: one session of Spark, many questions.

In:    lines: SQL that ends with ``;``, or a word such as ``help``; from a terminal, a pipe or a file.
Out:   answers on standard output; remarks, and questions that failed, on standard error.
State: the history of a terminal's lines, in a file of this user.
Not here: a single question (`heliograph pipeline sql` in pipeline.py), progress (pipeline/progress.py).

On a terminal a question that fails is told and forgotten, and Ctrl-C ends a question but not the shell. Otherwise the
first that fails ends it, since the next ones may rely on it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.pipeline import ROWS_SHOWN_MAX, Folder, working_spark
from heliograph.cli.shape import examples, fail_with, say
from heliograph.cli.spark_place import HERE, SparkPlace, with_spark
from heliograph.cli.tables import show
from heliograph.errors import HeliographError, UsageError

if TYPE_CHECKING:
    from heliograph.pipeline.progress import Progress

HISTORY = "pipeline-history"  # in the folder for persistent state
HISTORY_MAX = 1_000
PROMPT, MORE = "sql> ", "  -> "
HELP = """\
A question is SQL and ends with ; as in: select topic, events from topics order by events desc;
views          the tables and views, with their columns
refresh        read the tables anew: see what was archived since
help           this
exit           or Ctrl-D; Ctrl-C ends a question"""


def register(app: typer.Typer) -> None:
    """Add the command to `heliograph pipeline`."""
    app.command(
        name="shell",
        help="Ask many questions in SQL, in one session.",
        epilog=examples(
            "heliograph pipeline shell --tables archive",
            "echo 'select count(*) from events; show views;' | heliograph pipeline shell --tables archive",
        ),
    )(with_spark(_shell))


def _shell(
    tables: Folder,
    limit: Annotated[
        int, typer.Option("--limit", help="The most rows that are shown of an answer.", min=1)
    ] = ROWS_SHOWN_MAX,
    as_json: Annotated[bool, typer.Option("--json", help="Each answer as a JSON array of all its rows.")] = False,
    at: SparkPlace = HERE,
) -> None:
    from heliograph.pipeline.plain import plain_errors

    is_typed = sys.stdin.isatty()
    with working_spark(at) as (spark, told):
        asking = SqlShell(spark, tables, limit, as_json)
        asking.refresh()
        if is_typed:
            say("type help; exit or Ctrl-D ends")
        for question in questions(_typed(told) if is_typed else _piped()):
            try:
                with plain_errors():
                    if not asking.ask(question):
                        break
            except KeyboardInterrupt:
                if not is_typed:
                    raise
                asking.cancel()
                say("ended")
            except HeliographError as error:
                if not is_typed:
                    fail_with(error)
                say(f"heliograph: {error}")


# -- lines ------------------------------------------------------------------------------------------------------------

Reader = Callable[[str], str]
"""Reads a line after a prompt. EOFError: there is none; KeyboardInterrupt: forget what was typed so far."""


def questions(read: Reader) -> Iterator[str]:
    """The questions in some lines: several in one, one over several, the last one also without its ``;``."""
    typed = ""
    while True:
        try:
            line = read(MORE if typed.strip() else PROMPT)
        except EOFError:
            if typed.strip():
                yield typed.strip()
            return
        except KeyboardInterrupt:
            typed = ""
            say("")
            continue
        if not typed.strip() and line.strip().lower().rstrip(";") in WORDS:
            yield line.strip().lower().rstrip(";")
            continue
        typed = f"{typed}\n{line}"
        *whole, typed = split(typed)
        yield from (each.strip() for each in whole if each.strip())


def split(text: str) -> list[str]:
    """SQL between semicolons; those inside quotes and comments do not count. The last piece is not complete."""
    pieces, start, place = [], 0, 0
    while place < len(text):
        sign, two = text[place], text[place : place + 2]
        if sign in "'\"`":
            place = _quoted(text, place)
        elif two == "--":
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
        elif two == "/*":
            end = text.find("*/", place + 2)
            place = len(text) if end < 0 else end + 2
        else:
            if sign == ";":
                pieces.append(text[start:place])
                start = place + 1
            place += 1
    return [*pieces, text[start:]]


def _quoted(text: str, place: int) -> int:
    """The place behind a quoted text; the end, if it is not closed yet."""
    sign, place = text[place], place + 1
    while place < len(text):
        if text[place] == "\\" and sign != "`":
            place += 1
        elif text[place] == sign:
            return place + 1
        place += 1
    return place


def _piped() -> Reader:
    def read(_: str) -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    return read


def _typed(told: Progress) -> Reader:
    """Lines of a terminal, with their history. Progress is not told while somebody types."""
    file = _history()

    def read(prompt: str) -> str:
        with told.hidden():
            try:
                line = input(prompt)
            except EOFError:
                print()  # the prompt's line ends
                raise
        _remember(file)
        return line

    return read


def _history() -> Path | None:
    """The file with the history, read; None where lines cannot be edited or the file cannot be used."""
    from heliograph.live.private_file import state_dir

    with suppress(ImportError, OSError):
        import readline

        file = state_dir() / HISTORY
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(0o600)
        readline.read_history_file(file)
        readline.set_history_length(HISTORY_MAX)
        return file
    return None


def _remember(file: Path | None) -> None:
    """After each line: a session that is killed leaves its history."""
    if file is not None:
        import readline

        with suppress(OSError):
            readline.write_history_file(file)


# -- answers ----------------------------------------------------------------------------------------------------------


class SqlShell:
    """A session with the views of an archive."""

    def __init__(self, spark: Any, tables: str, most: int, as_json: bool) -> None:
        self._spark, self._tables, self._most, self._as_json = spark, tables, most, as_json

    def refresh(self) -> None:
        """Read what the tables are now."""
        from heliograph.pipeline import jobs

        views = jobs.list_views(self._spark, self._tables)
        if not views:
            raise UsageError(f"{self._tables} has no tables yet: run `heliograph pipeline archive` first")
        say("tables and views: " + ", ".join(view["name"] for view in views))

    def ask(self, question: str) -> bool:
        """Answer a question. False: it was the wish to end."""
        if question in WORDS:
            return WORDS[question](self)
        from heliograph.pipeline import answers

        found = self._spark.sql(question)
        if self._as_json:
            for line in answers.json_lines(found):
                print(line)
            return True
        rows, is_cut = answers.some_rows(found, self._most)
        show(rows, False, found.columns)
        if is_cut:
            say(f"there are more than these {self._most:,} rows: --limit shows more, --json gives all")
        return True

    def cancel(self) -> None:
        """End what Spark still does for the last question. PySpark tries too, in the middle of a call, and may fail."""
        with suppress(Exception):  # Java or the server may be gone; the next question tells
            if hasattr(self._spark, "_jsparkSession"):
                self._spark.sparkContext.cancelAllJobs()
            else:
                self._spark.interruptAll()

    def views(self) -> bool:
        """List them."""
        from heliograph.pipeline import jobs

        show(jobs.list_views(self._spark, self._tables), self._as_json)
        return True

    def again(self) -> bool:
        """Read the tables anew."""
        self.refresh()
        return True

    def help(self) -> bool:
        """Say what can be typed."""
        say(HELP)
        return True

    def end(self) -> bool:
        """No more questions."""
        return False


WORDS: dict[str, Callable[[SqlShell], bool]] = {
    "views": SqlShell.views,
    "refresh": SqlShell.again,
    "help": SqlShell.help,
    "exit": SqlShell.end,
    "quit": SqlShell.end,
}
