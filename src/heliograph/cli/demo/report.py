"""The demo's report: the measurements, and what was not as it should be.

In:    lines and checks of the scenes.
Out:   the summary's lines and the problems.
State: both.
Not here: printing the summary (command.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Report:
    """The measurements, and what was not as it should be."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _scenes: int = 0

    def begin(self, title: str) -> None:
        """A new scene."""
        self._scenes += 1
        print(f"\n{self._scenes}  {title}", flush=True)

    def add(self, name: str, text: str) -> None:
        """A line of the summary."""
        self.lines.append((name, text))

    def check(self, holds: bool, otherwise: str) -> None:
        """Record a problem unless the condition holds."""
        if not holds:
            self.problems.append(otherwise)
