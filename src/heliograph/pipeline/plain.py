"""One clear line instead of Java's eighty: what an error of Spark means for the user.

In:    exceptions of PySpark, Py4J, delta-rs and the operating system.
Out:   PipelineError with one line that says what to do.
State: none.
Not here: errors of the network (errors.py), which are clear already.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from heliograph.errors import HeliographError

LINE_MAX = 300
LIBRARIES = ("pyspark", "py4j", "deltalake", "_internal", "pyarrow", "grpc")
_CALL = re.compile(r"^An error occurred while calling \S+\n: (?:[\w.$]+: )?")  # of Java, by Python; then what is wrong
JAVA_GONE = "Java, which runs Spark, has ended, perhaps for lack of memory: run the command again, nothing is lost"

# Texts that occur in errors, and what to say instead.
_MEANINGS: tuple[tuple[str, str], ...] = (
    (r"No space left on device", "no space left on device: make room, then run the command again; nothing is lost"),
    (r"PATH_ALREADY_EXISTS.*?Path (\S+) already exists", "{0} is there already: choose another folder, or remove it"),
    (r"PATH_NOT_FOUND.*?(?:Path does not exist: )(\S+)", "{0} is not there: run `heliograph pipeline archive` first"),
    (r"No module named '?(pyarrow|heliograph\w*|pyspark_heliograph)'?", "a Spark worker runs a Python without {0}: "
     "install heliograph[spark] there, or set PYSPARK_PYTHON to a Python that has it"),
    (r"PYTHON_VERSION_MISMATCH|different version .*than that in driver", "Spark's workers run another version of "
     "Python than this process: set PYSPARK_PYTHON to the same Python on all machines"),
    (r"Python worker failed to connect back", "a Python worker did not start within 10 s: run the command "
     "again, nothing is lost, if this machine is busy; else PYSPARK_PYTHON names a Python that does not start"),
    (r"Python worker exited unexpectedly|Python worker process terminated", "a Python worker of Spark has ended, "
     "perhaps for lack of memory: run the command again, nothing is lost"),
    (r"ConcurrentQuery|CONCURRENT_STREAM_LOG_UPDATE|Another streaming query|multiple streaming queries",
     "another process works with the same checkpoint: stop it, or give this one a checkpoint of its own"),
    (r"TABLE_OR_VIEW_NOT_FOUND.*?`(\S+?)`", "there is no table {0}: ask 'show tables'"),
    (r"heliograph\.(?:\w+\.)*\w+Error: (.+)", "{0}"),
    (r"Answer from Java side is empty|Error while sending or receiving", JAVA_GONE),
    (r"^An error occurred while calling \S+$|JAVA_GATEWAY_EXITED", JAVA_GONE),
    (r"PARSE_SYNTAX_ERROR\S*\s*(.+)", "the SQL is not understood: {0}"),
    (r"year \S+ is out of range", "a time beyond the year 9999 cannot be shown: select unix_micros() of the column"),
    (r"Connection refused.*?sc://|UNAVAILABLE", "the Spark Connect server does not answer: check --remote"),
    (r"All masters are unresponsive|Failed to connect to master", "the Spark master does not answer: check --master"),
)  # fmt: skip


class PipelineError(HeliographError):
    """A job of the pipeline failed; the text says what to do."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Run a job; any error of Spark becomes one line."""
    try:
        yield
    except (HeliographError, KeyboardInterrupt, SystemExit):
        raise
    except ConnectionError as error:  # those to brokers and stores are HeliographErrors
        raise PipelineError(JAVA_GONE) from error
    except Exception as error:
        if not _is_foreign(error):
            raise
        raise PipelineError(meaning(str(error))) from error


def meaning(text: str) -> str:
    """One line for the text of an error."""
    for pattern, told in _MEANINGS:
        found = re.search(pattern, text)
        if found is not None:
            return told.format(*found.groups())[:LINE_MAX]
    lines = [line.strip() for line in _CALL.sub("", text).splitlines() if line.strip()]
    return (lines[0] if lines else "Spark failed without a word")[:LINE_MAX]


def _is_foreign(error: Exception) -> bool:
    """True for an error of a library that the pipeline uses, or one that was raised inside such a library."""
    inside = error.__traceback__
    while inside is not None and inside.tb_next is not None:
        inside = inside.tb_next
    names = [type(error).__module__, "" if inside is None else str(inside.tb_frame.f_globals.get("__name__", ""))]
    return any(name.split(".")[0] in LIBRARIES for name in names)
