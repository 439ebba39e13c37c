"""What a vault should hold: lists and dicts, nothing else. The slow twin of every back end.

In:    the changes of commits.
Out:   what a dump of the vault must look like.
State: logs and keys.
Not here: limits of one answer, which a dump does not show (test_conformance.py has them).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from heliograph.vault import Append, Change, Committed, Drop, Log, Put, Run, Trim


@dataclass
class ModelLog:
    first: int = 0
    next: int = 0
    times: list[int] = field(default_factory=list)  # every last_ns there ever was
    runs: list[Run] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)

    def describe(self, name: str) -> Log:
        return Log(
            name,
            self.first,
            self.next,
            len(self.runs),
            sum(len(run.data) for run in self.runs),
            self.runs[0].first_ns if self.runs else 0,
            max(self.times, default=0),
        )

    def from_position(self, start: int) -> list[Run]:
        return [run for run in self.runs if run.next > start]

    def since(self, time_ns: int) -> list[Run]:
        at = next((n for n, reached in enumerate(self.reached) if reached >= time_ns), len(self.runs))
        return self.runs[at:]


class Model:
    """The oracle."""

    def __init__(self) -> None:
        self.logs: dict[str, ModelLog] = {}
        self.keys: dict[str, bytes] = {}

    def commit(self, changes: list[Change]) -> Committed:
        positions: list[int] = []
        trimmed: list[Log] = []
        for change in changes:
            if isinstance(change, Append):
                log = self.logs.setdefault(change.log, ModelLog())
                positions.append(log.next)
                log.runs.append(Run(log.next, change.count, change.first_ns, change.last_ns, change.data))
                log.next += change.count
                log.times.append(change.last_ns)
                log.reached.append(max(log.times))
            elif isinstance(change, Trim):
                log = self.logs.get(change.log, ModelLog())
                while log.runs and log.runs[0].next <= change.before:
                    log.first = log.runs.pop(0).next
                    log.reached.pop(0)
                trimmed.append(log.describe(change.log))
            elif isinstance(change, Drop):
                self.logs.pop(change.log, None)
            elif isinstance(change, Put):
                self.keys[change.key] = change.value
            else:
                self.keys.pop(change.key, None)
        return Committed(tuple(positions), tuple(trimmed))

    def dump(self) -> dict[str, Any]:
        by_bytes = {"key": str.encode}
        return {
            "logs": [(self.logs[name].describe(name), self.logs[name].runs) for name in sorted(self.logs, **by_bytes)],
            "keys": [(key, self.keys[key]) for key in sorted(self.keys, **by_bytes)],
        }

    def after(self, commits: list[list[Change]]) -> Model:
        """What it would be after these too."""
        other = copy.deepcopy(self)
        for changes in commits:
            other.commit(changes)
        return other
