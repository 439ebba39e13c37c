"""Live networks of 8 to 12 brokers and 30 clients against an oracle that shares no code with them.

In:    seeds, which fix topology, clients, interests, publications and faults.
Out:   claims: in a settled network without faults nothing is lost, repeated, extra or misordered.
State: the broker processes of one network at a time.
Not here: the runs (runs.py); `python -m tests.independent` prints their figures.

Three topologies and one run of the two triangles are in `make test`, the others in `make sweep`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.independent.oracle import Verdict
from tests.independent.runs import on_random_topology, on_two_triangles, with_faults
from tests.many import cases

pytestmark = [pytest.mark.live, pytest.mark.slow]

NOTHING = (0, 0, 0, 0, 0)


def assert_right(verdict: Verdict) -> None:
    assert verdict.expected > verdict.sent
    assert verdict.wrong == NOTHING, verdict


@pytest.mark.req("N5", "N6", "N9", "N11", "N19")
@pytest.mark.parametrize("seed", cases(always=[1, 2, 3], sweep=range(4, 8), soak=range(8, 21)))
def test_in_a_settled_network_everything_arrives_once_and_in_order(seed: int, tmp_path: Path) -> None:
    assert_right(on_random_topology(seed, tmp_path))


@pytest.mark.req("N11")
@pytest.mark.parametrize("seed", cases(always=[0], sweep=[1, 2], soak=range(3, 10)))
def test_two_gateways_into_a_cluster_keep_the_order_under_load(seed: int, tmp_path: Path) -> None:
    assert_right(on_two_triangles(seed, tmp_path))


@pytest.mark.req("N6", "N8", "N11")
@pytest.mark.parametrize("seed", cases(sweep=[1, 2], soak=[3, 4]))
def test_faults_repeat_nothing_and_two_seconds_later_all_is_as_before(seed: int, tmp_path: Path) -> None:
    """What a killed broker had is not promised, nor order during a fault, nor that a group stays with one member."""
    verdicts = with_faults(seed, tmp_path)
    assert_right(verdicts.before)
    assert (verdicts.during.twice, verdicts.during.extra) == (0, 0), verdicts.during
    assert_right(verdicts.after)
