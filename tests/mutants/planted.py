"""A pytest plugin: refuses to run unless the tests import the tree with the planted bug.

In:    HELIOGRAPH_PLANTED, the folder of that tree.
Out:   a usage error of pytest (exit code 4) if another heliograph is imported.
State: none.
Not here: planting (__main__.py).
"""

from __future__ import annotations

import os

import pytest

import heliograph


def pytest_configure() -> None:
    planted = os.environ["HELIOGRAPH_PLANTED"]
    if not heliograph.__file__.startswith(planted):
        raise pytest.UsageError(f"the tests import {heliograph.__file__}, not the tree with the bug in {planted}")
