"""Asking and answering from the command line, and sharing work, with real processes and sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Run
from .processes import broker, piped, started, subscriber

pytestmark = [pytest.mark.live, pytest.mark.req("N19")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    with broker(home) as (_, address):
        yield address


def test_a_command_answers_requests_with_what_it_prints(home: Path, url: str) -> None:
    data = bytes(range(256))
    with started(home, "reply", "size", "--command", "wc -c", "--count", "2", "--url", url) as answerer:
        assert answerer.remark().startswith("answering on size")
        ran = piped(home, "request", "size", "-", "--url", url, data=data)
        told = piped(home, "request", "size", "abc", "--json", "--url", url, data=b"")

        assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, b"256", b"")
        assert json.loads(told.stdout)["payload"].strip() == "3"
        assert answerer.popen.wait(60) == 0


def test_a_command_that_fails_says_so_in_a_header(home: Path, url: str) -> None:
    with started(home, "reply", "bad", "--command", "sh -c 'echo no; exit 3'", "--url", url) as answerer:
        answerer.remark()
        ran = piped(home, "request", "bad", "x", "--json", "--url", url, data=b"")
        assert answerer.remark() == "heliograph: the command 'sh' failed with exit code 3; the asker is told"
        assert answerer.interrupt() == 0

    told = json.loads(ran.stdout)
    assert (told["payload"], told["headers"]) == ("no\n", {"exit": 3})
    assert (ran.returncode, ran.stderr) == (1, b"heliograph: the replier's command failed with exit code 3\n")


def test_a_command_that_does_not_read_its_input_does_not_end_the_service(home: Path, url: str) -> None:
    data = b"x" * 200_000  # more than a pipe holds
    with started(home, "reply", "deaf", "--command", "false", "--count", "3", "--url", url) as answerer:
        answerer.remark()
        codes = [piped(home, "request", "deaf", "-", "--url", url, data=data).returncode for _ in range(3)]

        assert (codes, answerer.popen.wait(60)) == ([1, 1, 1], 0)


def test_a_command_that_cannot_be_started_any_more_is_told_to_askers_and_does_not_end_the_service(
    home: Path, url: str
) -> None:
    program = home / "program"
    program.write_text("#!/bin/sh\necho here\n")
    program.chmod(0o700)
    with started(home, "reply", "gone", "--command", str(program), "--url", url) as answerer:
        answerer.remark()
        program.rename(home / "elsewhere")
        ran = piped(home, "request", "gone", "x", "--url", url, data=b"")
        assert "cannot be started: No such file" in answerer.remark()
        (home / "elsewhere").rename(program)
        again = piped(home, "request", "gone", "x", "--url", url, data=b"")

    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"failed with exit code 127" in ran.stderr
    assert (again.returncode, again.stdout) == (0, b"here\n")


def test_an_echo_comes_back_as_it_went(home: Path, url: str) -> None:
    data = bytes(range(256))
    with started(home, "reply", "ping/#", "--echo", "--url", url) as answerer:
        answerer.remark()
        piped(home, "publish", "ping/1", "no request", "--url", url, data=b"")
        assert piped(home, "request", "ping/1", "-", "--url", url, data=data).stdout == data


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("request", "nobody/here", "x"), 1, "responders_missing"),
        (("request", "a/+", "x"), 2, "not a topic"),
        (("request", "a", "x", "--header", "novalue"), 2, "write key=value"),
        (("reply", "a"), 2, "either --command or --echo"),
        (("reply", "a", "--echo", "--command", "date"), 2, "either --command or --echo"),
        (("reply", "a", "--command", "'"), 2, "No closing quotation"),
        (("reply", "a", "--command", ""), 2, "nothing to run"),
        (("reply", "a", "--command", "no-such-program -x"), 2, "there is no program 'no-such-program'"),
    ],
)
def test_a_mistake_is_told_in_words(run: Run, url: str, arguments: tuple[str, ...], code: int, told: str) -> None:
    ran = run(*arguments, "--url", url)

    assert ran.code == code
    assert told in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("command", [("subscribe", "#"), ("reply", "a", "--echo")], ids=["subscribe", "reply"])
def test_sigterm_ends_it_like_ctrl_c(home: Path, url: str, command: tuple[str, ...]) -> None:
    with started(home, *command, "--url", url) as process:
        process.remark()
        process.popen.terminate()
        assert process.popen.wait(60) == 0
        assert process.end().count("\n") == 0  # it said nothing more


def test_subscribers_of_a_group_share_the_work(home: Path, url: str) -> None:
    shared = ("jobs", "--group", "workers", "--wide", "--count", "2", "--url", url)
    with subscriber(home, *shared) as one, subscriber(home, *shared) as other:
        piped(home, "publish", "jobs", "-", "--url", url, data=b"1\n2\n3\n4\n")

        assert sorted([one.line(), one.line(), other.line(), other.line()]) == [f"jobs {n}" for n in (1, 2, 3, 4)]
