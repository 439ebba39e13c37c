"""The experiment on topics: every step is timed, and the paper's statements hold."""

from __future__ import annotations

from itertools import count

import pytest

from heliograph.evaluation import topics


@pytest.mark.req("T15")
def test_the_table_has_both_topologies_and_every_step_beside_the_papers() -> None:
    ticks = count()
    report = topics.evaluate(lambda: next(ticks) / 1_000, 3)
    assert [(row["topology"], row["what"]) for row in report["rows"]] == [
        (place, what) for place in ("local", "wide") for what in ("create", "find 1", "find 10", "find 100")
    ]
    assert report["rows"][0]["paper"]["mean"] == 211.26
    assert [row["step"] for row in report["steps"]] == list(topics.STEPS)
    assert sum(row["share"] for row in report["steps"]) == pytest.approx(1, abs=0.01)
    assert report["rows"][4]["network_ms"] > report["rows"][0]["network_ms"]


@pytest.mark.req("T15")
def test_more_topics_take_longer() -> None:
    from time import process_time

    assert topics.evaluate(process_time, 5)["checks"][0]["holds"]
