"""Tests draw nothing by chance: the same checkout gives the same result. Only `make soak` looks for new examples."""

from __future__ import annotations

import re

from hypothesis import settings

from tests.architecture.house import ROOT

UNSEEDED = re.compile(r"\bRandom\(\)|\bSystemRandom\b|^\s*(?:import|from) (?:secrets|uuid)\b|seed=time\.", re.MULTILINE)


def test_no_test_draws_what_nobody_seeded() -> None:
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (found := UNSEEDED.findall(path.read_text("utf-8"))) and path.name != "test_chance.py"
    }
    assert wrong == {}


def test_properties_have_the_same_examples_every_time_except_in_make_soak() -> None:
    for name in ("house", "quick", "mutants"):
        profile = settings.get_profile(name)
        assert profile.derandomize, name
        assert profile.database is None, name
    assert not settings.get_profile("thorough").derandomize
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert makefile.count("--hypothesis-profile thorough") == 1
