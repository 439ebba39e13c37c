"""The short form of ``make fuzz``, and every input that ever did harm.

In:    fuzz.py and the files in corpus/.
Out:   claims that the broker goes on serving.
State: none.
Not here: the long run (``make fuzz``).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import fuzz
from tests.fuzz.inputs import Input
from tests.fuzz.targets import MachineTarget

pytestmark = pytest.mark.req("O6")


@pytest.mark.live
@pytest.mark.slow
def test_three_thousand_bad_inputs_do_no_harm_and_meet_every_reason(tmp_path: Path) -> None:
    outcome = fuzz.run(3_000, seed=1, corpus=tmp_path)
    assert outcome.faults == []
    assert outcome.missing == [], str(outcome)
    assert outcome.kinds["mutated"] >= 1_500
    assert outcome.shots["tcp"] + outcome.shots["tls"] >= 150


@pytest.mark.parametrize("file", sorted(fuzz.CORPUS.glob("*.txt")), ids=lambda file: file.stem)
def test_an_input_that_once_did_harm_does_none_now(file: Path) -> None:
    target = MachineTarget()
    target.shoot(Input.read(file.read_text()))
    target.check_tables()
    target.finish()


def test_an_input_is_read_as_it_was_written() -> None:
    given = Input.read("# mutated\n0 dial main\n0 bytes 00ff\n0 silence 10\n0 press\n0 leave\n")
    assert [step.verb for step in given.steps] == ["dial", "bytes", "silence", "press", "leave"]
    assert str(given) == "# mutated\n0 dial main\n0 bytes 00ff\n0 silence 10\n0 press\n0 leave\n"
