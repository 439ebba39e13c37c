"""The log: notes become lines of text or JSON on a stream.

In:    notes, with the name of the machine that made them; a few lines of the node itself.
Out:   one line each, with time, level, broker and machine.
State: per kind of note, the lines of this second: a flood of bad peers must not become a flood of lines.
Not here: kinds of notes (notes.py), how often each occurred (counters.py).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from time import time_ns
from typing import Any, TextIO

from heliograph.errors import Reason, UsageError
from heliograph.model.settings import Problem, check, setting
from heliograph.notes import Note

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
LINES_PER_SECOND = 50  # per kind of note; the rest are counted and summed up in one line
SAID = "node_said"

_PLAIN = re.compile(r"[\w.:/@+-]+\Z", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What is logged, and in which form."""

    level: str = setting("info", "the lowest level that is logged", choices=LEVELS, reloads=False)
    format: str = setting("text", "text for people, or one JSON object per line", choices=FORMATS, reloads=False)

    def problems(self, path: str = "log") -> list[Problem]:
        """All problems with these settings."""
        return check(self, path)


class NodeLog:
    """Writes lines. It never raises: a full disk or a closed terminal must not end a broker."""

    def __init__(
        self,
        broker: str,
        *,
        level: str = "info",
        format: str = "text",
        stream: TextIO | None = None,
        clock: Callable[[], int] = time_ns,
    ) -> None:
        if level not in LEVELS or format not in FORMATS:
            raise UsageError(f"a log's level is one of {', '.join(LEVELS)}, its format one of {', '.join(FORMATS)}")
        self._broker = broker
        self._loud_enough = frozenset(LEVELS[LEVELS.index(level) :])
        self._line = _json_line if format == "json" else _text_line
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._second = 0
        self._lines: dict[str, int] = {}

    def heard(self, machine: str, note: Note) -> None:
        """Log a note, passed on by the driver."""
        level = note.level
        if level not in self._loud_enough:
            return
        kind = kind_of(note)
        now = self._clock()
        if now // 1_000_000_000 != self._second:
            self._tell_suppressed(now)
        lines = self._lines[kind] = self._lines.get(kind, 0) + 1
        if lines <= LINES_PER_SECOND:
            fields = {name: getattr(note, name) for name in note.__struct_fields__}
            self._write(now, level, machine, kind, fields)

    def say(self, level: str, text: str) -> None:
        """Log a line of the node itself."""
        if level in self._loud_enough:
            self._write(self._clock(), level, "node", SAID, {"text": text})

    def _tell_suppressed(self, now: int) -> None:
        for kind, lines in self._lines.items():
            if lines > LINES_PER_SECOND:
                self._write(
                    now, "warning", "log", "lines_suppressed", {"kind": kind, "lines": lines - LINES_PER_SECOND}
                )
        self._lines.clear()
        self._second = now // 1_000_000_000

    def _write(self, now: int, level: str, machine: str, kind: str, fields: Mapping[str, Any]) -> None:
        try:
            self._stream.write(self._line(now, level, self._broker, machine, kind, fields))
            self._stream.flush()
        except (OSError, ValueError):
            pass  # the stream is closed, which is no reason to stop


def kind_of(note: Note) -> str:
    """A note's kind as logs and counters show it."""
    return str(note.__struct_config__.tag)


def _text_line(now: int, level: str, broker: str, machine: str, kind: str, fields: Mapping[str, Any]) -> str:
    if kind == SAID:
        return f"{_stamp(now)} {level:<7} {broker} {machine} {fields['text']}\n"
    pairs = "".join(f" {name}={_word(value)}" for name, value in fields.items())
    return f"{_stamp(now)} {level:<7} {broker} {machine} {kind}{pairs}\n"


def _json_line(now: int, level: str, broker: str, machine: str, kind: str, fields: Mapping[str, Any]) -> str:
    head = {"time": _stamp(now), "level": level, "broker": broker, "machine": machine, "note": kind}
    return json.dumps(head | {name: _value(value) for name, value in fields.items()}) + "\n"


def _word(value: Any) -> str:
    """A value in a line of text. Anything that may come from a peer is quoted, so that it cannot forge a line."""
    value = _value(value)
    if isinstance(value, str) and _PLAIN.match(value):
        return value
    return json.dumps(value)


def _value(value: Any) -> Any:
    if isinstance(value, Reason):
        return value.word
    return value.value if isinstance(value, Enum) else value


def _stamp(now: int) -> str:
    return datetime.fromtimestamp(now / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
