"""The forms of a broker's hot path: which there are here, and how a test chooses one.

In:    the name of a form.
Out:   brokers that are made while the test runs use it.
State: none.
Not here: any judgement (the tests).
"""

from __future__ import annotations

import pytest

from heliograph.broker import arrivals, broker, hot, reading
from heliograph.broker.shortcut import PlainShortcut, Shortcut
from heliograph.wire.scan import scan

FORMS = ("python", "native") if hot.is_native else ("python",)


def use(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let brokers use this form from now on, until the test ends."""
    for module in (reading, arrivals):
        monkeypatch.setattr(module, "scan", scan if form == "python" else hot.scan)
    monkeypatch.setattr(broker, "Shortcut", PlainShortcut if form == "python" else Shortcut)
