"""Rules for all tests: the same code gives the same result, on a busy machine as on a free one.

Properties draw the same examples in every run of `make test` and `make quick`. Only `make soak` draws new ones; what it
finds becomes an ``@example`` of the property.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, settings

from heliograph.guard import Guard
from tests.examples import USUAL

slow = [HealthCheck.too_slow]
settings.register_profile(
    "house",  # for `make test`; without a database, what an earlier run found changes nothing
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=slow,
    max_examples=USUAL * 2 // 3,
)
house = settings.get_profile("house")
settings.register_profile("quick", house, max_examples=USUAL // 6)  # for `make quick`
settings.register_profile("mutants", house, phases=[Phase.explicit, Phase.generate])  # for `make mutants`: no shrinking
settings.register_profile(  # for `make soak`
    "thorough", deadline=None, derandomize=False, print_blob=True, suppress_health_check=slow, max_examples=USUAL * 10
)
settings.load_profile("house")

# A shell that starts the tests in the background lets them ignore Ctrl-C; commands under test must not inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Clients without credentials keep the secret of their durable names in the user's state folder: not in ours.
_state = TemporaryDirectory(prefix="heliograph-state-")
os.environ["HELIOGRAPH_STATE_DIR"] = _state.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests begin first, so that none of them is still running when everything else is done."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: looking through it for garbage, again and again, takes a while."""
    gc.collect()
    gc.freeze()


class Caught:
    """What the guards of all machines in this process caught during one test (guard.py)."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self.is_expected = False

    def expect(self) -> None:
        """This test plants a fault in a machine, and looks at ``places`` itself."""
        self.is_expected = True


@pytest.fixture(autouse=True)
def caught(monkeypatch: pytest.MonkeyPatch) -> Iterator[Caught]:
    """A unit of work that raised is a bug, although the machine goes on: it fails the test, driver or not."""
    found = Caught()
    told = Guard.caught

    def caught(self: Guard, where: str, error: Exception, now: int, link: int = 0, entity: str = "") -> None:
        found.places.append(f"{where}: {error!r}")
        told(self, where, error, now, link, entity)

    monkeypatch.setattr(Guard, "caught", caught)
    yield found
    assert found.is_expected or not found.places, f"a guard caught {found.places[:3]}"
