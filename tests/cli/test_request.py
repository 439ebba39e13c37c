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
        assert answerer.popen.wait(30) == 0


def test_a_command_that_fails_says_so_in_a_header(home: Path, url: str) -> None:
    with started(home, "reply", "bad", "--command", "sh -c 'echo no; exit 3'", "--url", url) as answerer:
        answerer.remark()
        told = json.loads(piped(home, "request", "bad", "x", "--json", "--url", url, data=b"").stdout)
        assert answerer.interrupt() == 0

    assert (told["payload"], told["headers"]) == ("no\n", {"exit": 3})


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
    ],
)
def test_a_mistake_is_told_in_words(run: Run, url: str, arguments: tuple[str, ...], code: int, told: str) -> None:
    ran = run(*arguments, "--url", url)

    assert ran.code == code
    assert told in ran.err
    assert "Traceback" not in ran.err


def test_subscribers_of_a_group_share_the_work(home: Path, url: str) -> None:
    shared = ("jobs", "--group", "workers", "--wide", "--count", "2", "--url", url)
    with subscriber(home, *shared) as one, subscriber(home, *shared) as other:
        piped(home, "publish", "jobs", "-", "--url", url, data=b"1\n2\n3\n4\n")

        assert sorted([one.line(), one.line(), other.line(), other.line()]) == [f"jobs {n}" for n in (1, 2, 3, 4)]
