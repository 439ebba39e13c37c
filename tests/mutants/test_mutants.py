"""The runner of planted bugs: what it calls found is found, and nothing else counts as success."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.mutants.__main__ import BROKEN, FOUND, NOT_FOUND, STALE, main, try_out
from tests.mutants.listing import SOURCE, Mutant

BUG = Mutant(
    file="model/origin.py",
    bug="origins are read from the wrong end",
    old='"little")',
    new='"big")',
    test="tests/wire/test_golden.py::test_an_origin_is_the_little_endian_start_of_the_secrets_hash",
)
ELSEWHERE = "tests/matching/test_topics.py::test_a_bad_topic_is_told_what_is_wrong"


@pytest.mark.slow
def test_a_bug_that_its_test_notices_is_found_and_the_checkout_is_left_alone() -> None:
    before = (SOURCE / BUG.file).read_bytes()
    assert try_out(BUG).verdict == FOUND
    assert (SOURCE / BUG.file).read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "verdict", "detail"),
    [
        (replace(BUG, test=ELSEWHERE), NOT_FOUND, f"{ELSEWHERE} passes with"),
        (replace(BUG, test="tests/wire/test_golden.py::test_nothing"), BROKEN, "pytest ended with 4"),
        (replace(BUG, new='"little"))'), BROKEN, "pytest ended with"),
    ],
    ids=["nobody notices", "no such test", "it cannot be loaded"],
)
def test_a_test_that_passes_is_missing_or_cannot_be_loaded_has_found_nothing(
    mutant: Mutant, verdict: str, detail: str
) -> None:
    outcome = try_out(mutant)
    assert outcome.verdict == verdict
    assert detail in outcome.detail


def test_a_bug_whose_text_or_file_is_gone_does_not_apply_and_says_where_to_update(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gone = [replace(BUG, old="no such text"), replace(BUG, file="model/gone.py")]
    assert main(["--jobs", "1"], gone) == 1
    printed = capsys.readouterr().out
    assert printed.count(STALE) == 2
    assert "tests/mutants/list.toml" in printed
    assert "0 of 2 planted bugs found" in printed

    assert main(["--jobs", "1", "--json"], gone[:1]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == STALE


def test_no_bugs_at_all_is_no_success() -> None:
    assert main(["--jobs", "1"], []) == 1
    assert main(["no mutant has this word"], [BUG]) == 1
