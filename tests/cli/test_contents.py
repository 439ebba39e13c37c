"""Asking for content from the command line: real processes, one broker and three."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run
from .processes import broker, piped, subscriber

pytestmark = [pytest.mark.live, pytest.mark.req("N9", "O2")]
WHERE = "disk > 120 and system = 'linux'"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def url(home: Path) -> Iterator[str]:
    with broker(home) as (_, address):
        yield address


def publish(run: Run, url: str, topic: str, payload: str, **headers: object) -> None:
    options = [option for name, value in headers.items() for option in ("--header", f"{name}={value}")]
    ran = run("publish", topic, payload, *options, "--url", url)
    assert (ran.code, ran.err) == (0, "")


def test_one_terminal_prints_what_fits_its_condition_and_nothing_else(run: Run, home: Path, url: str) -> None:
    with subscriber(home, "hosts/#", "--where", WHERE, "--json", "--url", url) as terminal:
        publish(run, url, "hosts/h1", "small", disk=12, system="linux")
        publish(run, url, "hosts/h2", "other", disk=200, system="plan9")
        publish(run, url, "hosts/h3", "text", disk='"200"', system="linux")
        publish(run, url, "hosts/h4", "nothing")
        publish(run, url, "hosts/h1", "x", disk=200, system="linux")
        line = json.loads(terminal.line())

    assert (line["topic"], line["payload"]) == ("hosts/h1", "x")
    assert line["headers"] == {"disk": 200, "system": "linux"}


@pytest.mark.parametrize(
    ("language", "where", "topic", "payload", "headers"),
    [
        ("sql", "disk BETWEEN 100 AND 300 AND system LIKE 'li%'", "hosts/1", "x", {"disk": 200, "system": "linux"}),
        ("regex", "system ~ '^lin'", "hosts/1", "x", {"system": "linux"}),
        ("xpath", "/host[disk > 120]", "hosts/1", "<host><disk>200</disk></host>", {}),
        ("tags", "system=linux", "disk=200,system=linux", "x", {}),
        ("integer", "100..300", "200", "x", {}),
    ],
)
def test_every_language_can_be_asked_in(
    run: Run, home: Path, url: str, language: str, where: str, topic: str, payload: str, headers: dict[str, object]
) -> None:
    with subscriber(home, "--where", where, "--language", language, "--url", url) as terminal:
        publish(run, url, "hosts/1", "not this", disk=1, system="vms")
        publish(run, url, topic, payload, **headers)

        assert terminal.line() == f"{topic} {payload}"


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    ("options", "told", "column"),
    [
        (("--where", "disk > 120 and system ~ 'linux'"), "character 23", 22),
        (("--where", "disk >"), "the text ends (at character 7)", 6),
        (("--where", "disk BETWEEN 1 OR 2", "--language", "sql"), "character", 15),
    ],
)
def test_a_wrong_condition_is_one_error_that_points_at_the_character(
    run: Run, url: str, options: tuple[str, ...], told: str, column: int
) -> None:
    ran = run("subscribe", "hosts/#", *options, "--url", url)

    assert ran.code == 1
    said, text, caret = ran.err.splitlines()
    assert said.startswith("heliograph: ")
    assert told in said
    assert text.endswith(options[1])
    assert caret.index("^") - text.index(options[1]) == column


@pytest.mark.req("O6")
def test_a_language_that_is_not_there_is_told_with_those_that_are(run: Run, url: str) -> None:
    ran = run("subscribe", "hosts/#", "--where", "x", "--language", "prolog", "--url", url)

    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert "prolog" in ran.err
    assert "predicates" in ran.err


@pytest.mark.slow
@pytest.mark.req("N5", "R3")
def test_content_crosses_a_network_and_a_trace_explains_it(run: Run, tmp_path: Path) -> None:
    up = piped(tmp_path, "network", "up", "3", "--detach", "--json", data=b"")
    try:
        assert up.returncode == 0, up.stderr
        urls = {row["name"]: f"heliograph://{row['address']}" for row in json.loads(up.stdout)}
        (first, middle, last) = urls.values()
        names = list(urls)
        with (
            subscriber(tmp_path, "hosts/#", "--where", WHERE, "--wide", "--url", last) as far,
            subscriber(tmp_path, "hosts/#", "--where", "disk > 300", "--wide", "--url", middle),
        ):
            publish(run, first, "hosts/h1", "small", disk=12, system="linux")
            publish(run, first, "hosts/h1", "large", disk=200, system="linux")
            assert far.line() == "hosts/h1 large"

            trace = _traced(run, names[0], "disk=200", "system=linux")
            assert [row["broker"] for row in trace["brokers"] if row["links"]] == [names[2]]
            became = {row["of"]: (row["matches"], row["failed"]) for row in trace["interests"] if row["where"]}
            assert became[names[2]] == (True, "")
            assert became[names[1]] == (False, "disk > 300")

            text = run("network", "trace", "hosts/h1", "--header", "disk=12", "--at", names[0]).out
            assert "no client would get it" in text
            assert f"not by the interest of {names[1]}: hosts/# where disk > 300; failed: disk > 300" in text
    finally:
        run("network", "down")


def _traced(run: Run, at: str, *headers: str) -> Any:
    options = [option for header in headers for option in ("--header", header)]
    ran = run("network", "trace", "hosts/h1", *options, "--at", at, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)
