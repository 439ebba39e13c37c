"""What a second try excuses, and what it does not."""

from __future__ import annotations

from tests.ci.verdict import UNSTEADY_MAX, faults_of_tests, first_output, lasting_faults

TESTED = ("test-plain", "test-spark")
LIVE = "tests/live/test_node.py::test_a_signal[SIGINT]"
FAILURE = """\
=================================== FAILURES ===================================
_________________________ test_a_signal[SIGINT] __________________________
[gw0] linux -- Python 3.11
E   assert 1 == 2
_________________________ TestGroup.test_other __________________________
E   another one
=========================== short test summary info ============================
FAILED tests/live/test_node.py::test_a_signal[SIGINT]
make: *** [Makefile:38: test-plain] Error 1
make: Target 'test' not remade because of errors.
"""


def test_tests_that_failed_are_no_lasting_fault() -> None:
    assert lasting_faults(FAILURE, TESTED) == []


def test_a_target_without_tests_and_pytest_that_could_not_work_are_lasting_faults() -> None:
    sweep = "make: *** [Makefile:60: sweep-seeds] Error 1\n"
    assert lasting_faults(sweep, TESTED) == ["make sweep-seeds: exit code 1"]
    interrupted = "make[1]: *** [Makefile:38: test-spark] Error 2\n"
    assert lasting_faults(interrupted, TESTED) == ["make test-spark: exit code 2"]
    assert lasting_faults("Killed\n", TESTED) == ["make failed and did not say where"]


def test_a_crashed_worker_is_a_lasting_fault() -> None:
    crashed = "worker 'gw1' crashed while running 'tests/live/test_node.py::test_a_signal'\n"
    assert lasting_faults(crashed + FAILURE, TESTED) == [crashed.strip()]


def test_what_fails_again_or_gets_no_second_try_is_a_fault() -> None:
    assert faults_of_tests([LIVE, "tests/a.py::test_pure"], ["tests/a.py::test_pure"]) == [
        "tests/a.py::test_pure: failed"
    ]


def test_few_unsteady_tests_are_accepted_and_many_are_not() -> None:
    some = [f"tests/a.py::test_{number}" for number in range(UNSTEADY_MAX)]
    assert faults_of_tests(some, []) == []
    assert len(faults_of_tests([*some, LIVE], [])) == 1


def test_the_first_output_of_a_test_is_found_by_its_name() -> None:
    assert first_output(FAILURE, LIVE).splitlines()[1:] == ["[gw0] linux -- Python 3.11", "E   assert 1 == 2"]
    assert first_output(FAILURE, "tests/b.py::TestGroup::test_other").splitlines()[1:] == ["E   another one"]
    assert first_output(FAILURE, "tests/b.py::test_unknown") == "(not found in the output above)"
