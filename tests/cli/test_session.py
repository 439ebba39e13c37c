"""Publishing and subscribing from the command line, with real processes and sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Run
from .processes import Process, broker, piped, started, subscriber

pytestmark = [pytest.mark.live, pytest.mark.req("O2")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    with broker(home) as (_, address):
        yield address


def test_what_is_published_in_one_terminal_is_printed_in_the_other(home: Path, url: str) -> None:
    with subscriber(home, "sensors/#", HELIOGRAPH_URL=url) as terminal:
        ran = piped(home, "publish", "sensors/7", "21.5", data=b"", HELIOGRAPH_URL=url)

        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
        assert terminal.line() == "sensors/7 21.5"


def test_lines_of_standard_input_are_publications_in_order(home: Path, url: str) -> None:
    lines = [f"line {number}" for number in range(1_000)]
    with subscriber(home, "log", "--count", "1000", "--url", url) as terminal:
        ran = piped(home, "publish", "log", "-", "--url", url, data="\n".join(lines).encode())

        assert ran.returncode == 0
        assert [terminal.line() for _ in lines] == [f"log {line}" for line in lines]
        assert terminal.popen.wait(60) == 0


def test_json_goes_out_as_it_can_come_in(home: Path, url: str) -> None:
    payload = bytes(range(256))
    with subscriber(home, "photos/#", "--json", "--url", url) as first:
        sent = piped(home, "publish", "photos/1", "-", "--whole", "--header", "type=raw", "--url", url, data=payload)
        line = first.line()
        again = piped(home, "publish", "unused", "-", "--json", "--url", url, data=line.encode())
        second = first.line()

    told, repeated = json.loads(line), json.loads(second)
    assert sent.returncode == again.returncode == 0
    assert json.loads(again.stdout) == {"published": 1}
    assert (told["topic"], told["headers"]) == ("photos/1", {"type": "raw"})
    assert {key: told[key] for key in ("topic", "payload_base64", "headers")} == {
        key: repeated[key] for key in ("topic", "payload_base64", "headers")
    }
    assert told["origin"] != repeated["origin"]


def test_a_publication_that_several_filters_match_is_printed_once_and_in_order(run: Run, home: Path, url: str) -> None:
    lines = b"".join(
        b'{"topic": "%s", "payload": "%d"}\n' % (topic, n) for n in range(50) for topic in (b"m/a", b"m/b")
    )
    with subscriber(home, "m/#", "m/a", "m/b", "--url", url) as terminal:
        piped(home, "publish", "unused", "-", "--json", "--url", url, data=lines)
        run("publish", "m/end", "x", "--url", url)

        printed = [terminal.line() for _ in range(101)]

    assert printed == [f"{topic} {n}" for n in range(50) for topic in ("m/a", "m/b")] + ["m/end x"]


def test_ctrl_c_ends_a_subscriber_cleanly(home: Path, url: str) -> None:
    with subscriber(home, "quiet", "--url", url) as terminal:
        assert terminal.interrupt() == 0
        assert "Traceback" not in terminal.end()


def test_a_closed_pipe_ends_a_subscriber_cleanly(run: Run, home: Path, url: str) -> None:
    with subscriber(home, "pipe", "--url", url) as terminal:
        terminal.out.close()
        run("publish", "pipe", "x", "--count", "3", "--url", url)

        assert terminal.popen.wait(60) == 0
        assert terminal.err.read() == b""


def test_publishing_from_a_stream_can_be_interrupted(home: Path, url: str) -> None:
    with subscriber(home, "stream", "--url", url) as terminal:
        publisher = Process(home, "publish", "stream", "-", "--url", url)
        try:
            assert publisher.popen.stdin is not None
            publisher.popen.stdin.write(b"first\n")
            assert terminal.line() == "stream first"
            assert publisher.interrupt() == 130
        finally:
            assert "Traceback" not in publisher.end()


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("publish", "a/+", "x"), 2, "not a topic"),
        (("publish", "Services/x", "x"), 1, "publish_denied"),
        (("publish", "a", "x", "--header", "novalue"), 2, "write key=value"),
        (("publish", "a", "x", "--whole"), 2, "--whole goes with -"),
        (("publish", "a", "-", "--count", "2"), 2, "--count goes with a payload"),
        (("publish", "a", "x", "--url", "http://example.org"), 2, "heliograph://host:port"),
        (("publish", "a", "x", "--entity", "e", "--token-file", "gone"), 2, "gone"),
        (("subscribe", "a/#/b"), 2, "not a topic filter"),
        (("subscribe", "System/#"), 1, "subscribe_denied"),
        (("subscribe", "a", "--language", "sql"), 2, "give --where too"),
        (("subscribe", "a", "--policy", "shout"), 2, "shout"),
    ],
)
def test_a_mistake_is_told_in_words(run: Run, url: str, arguments: tuple[str, ...], code: int, told: str) -> None:
    ran = run(*arguments) if "--url" in arguments else run(*arguments, "--url", url)

    assert ran.code == code
    assert told in ran.err
    assert "Traceback" not in ran.err


def test_a_bad_line_is_named_and_what_came_before_it_is_published(home: Path, url: str) -> None:
    with subscriber(home, "bad", "--url", url) as terminal:
        ran = piped(
            home, "publish", "bad", "-", "--json", "--url", url, data=b'{"payload": "good"}\n\n{"payload": 7}\n'
        )

        assert ran.returncode == 2
        assert b"standard input, line 3: the payload must be a text" in ran.stderr
        assert terminal.line() == "bad good"


def test_a_name_that_is_far_too_long_does_not_hide_what_is_wrong_with_it(run: Run, url: str) -> None:
    for command in (("publish", "a" * 70_000, "x"), ("subscribe", "a" * 70_000)):
        ran = run(*command, "--url", url)

        assert ran.code == 2
        assert "it has 70000 bytes" in ran.err
        assert len(ran.err) < 300


def test_who_looks_for_a_broker_is_told_which_one_was_found(home: Path, url: str) -> None:
    options = {"HELIOGRAPH_SEARCH__MULTICAST": "false", "HELIOGRAPH_SEARCH__BROKERS": url.partition("//")[2]}
    listener = Process(home, "subscribe", "a", "--discover", **options)
    try:
        place = f"broker broker ({url.replace('localhost', '127.0.0.1')})"
        assert listener.remark() == f"subscribed to a at {place}; Ctrl-C ends"
    finally:
        listener.end()


def test_where_nobody_is_known_to_be_one_is_told_to_look_at_the_address(run: Run) -> None:
    ran = run("publish", "a", "x", "--url", "heliograph://no-such-host.invalid")

    assert ran.code == 1
    assert "check the name and the port" in ran.err


def test_without_a_broker_one_is_told_how_to_start_one(run: Run) -> None:
    ran = run("publish", "a", "x", "--url", "heliograph://127.0.0.1:1")

    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert "`heliograph broker run` starts one" in ran.err


@pytest.mark.live
def test_a_subscriber_ends_when_its_time_is_over(run: Run, url: str) -> None:
    ran = run("subscribe", "quiet", "--timeout", "0.2", "--url", url)
    assert (ran.code, ran.out) == (0, "")
    ran = run("subscribe", "quiet", "--timeout", "0.2", "--count", "2", "--url", url)
    assert ran.code == 1
    assert "0.2 s are over, and 2 of --count did not come" in ran.err


@pytest.mark.sweep  # ten seconds, which a publisher waits for its broker at the end
@pytest.mark.req("O2")
def test_commands_that_go_on_say_that_their_broker_is_away_and_what_was_not_confirmed(tmp_path: Path) -> None:
    with (
        broker(tmp_path) as (process, url),
        started(tmp_path, "subscribe", "logs/#", "--url", url) as reader,
        started(tmp_path, "reply", "echo", "--echo", "--url", url) as replier,
        started(tmp_path, "publish", "logs/web", "-", "--url", url) as publisher,
    ):
        assert reader.remark().startswith("subscribed to")
        assert replier.remark().startswith("answering on echo")
        assert publisher.popen.stdin is not None
        publisher.popen.stdin.write(b"first\n")
        assert reader.line() == "logs/web first"
        process.popen.kill()
        for command in (reader, replier, publisher):
            assert "cannot be reached" in command.remark()
        publisher.popen.stdin.write(b"second\nthird\n")
        publisher.popen.stdin.close()
        assert publisher.popen.wait(60) == 1
        told = publisher.remark()  # the first may have been confirmed, or not yet
        assert told.endswith(("2 of 3 publications were not confirmed", "3 of 3 publications were not confirmed"))
