"""How many cases of one thing are run when: a few always, more in the sweep, the rest in the soak.

In:    cases, and how many of them each run gets.
Out:   parameters for ``pytest.mark.parametrize``, with their marks.
State: none.
Not here: how many examples a property gets (examples.py), the seeds of scenarios (sweep/seeds.toml).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def cases(*, always: Iterable[Any] = (), sweep: Iterable[Any] = (), soak: Iterable[Any] = ()) -> list[Any]:
    """The parameters of a test: a case that is a tuple has several."""
    return [
        *(_parameter(case) for case in always),
        *(_parameter(case, pytest.mark.sweep) for case in sweep),
        *(_parameter(case, pytest.mark.soak) for case in soak),
    ]


def _parameter(case: Any, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks)
