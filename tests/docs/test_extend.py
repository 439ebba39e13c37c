"""What the page about extending Heliograph shows works as written."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any

import typer

from heliograph.cli import main
from heliograph.model.settings import Problem, check, setting
from heliograph.notes import Note
from heliograph.observe.log import NodeLog
from heliograph.sim.run import play
from heliograph.sim.scenario_files import parse
from tests.architecture.house import ROOT, SOURCE

PAGE = (ROOT / "docs" / "how-to" / "extend.md").read_text("utf-8")
GIVEN = {"Note": Note, "Problem": Problem, "check": check, "dataclass": dataclass, "setting": setting}


def blocks(kind: str) -> list[str]:
    found: list[str] = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return found


def run(kind: str) -> dict[str, Any]:
    """The names that the only block of a kind defines."""
    (block,) = blocks(kind)
    names: dict[str, Any] = dict(GIVEN, __name__=__name__)
    exec(block, names)
    return names


def test_the_service_is_the_one_that_test_new_service_adds() -> None:
    """tests/services/test_new_service.py follows the steps with it, in both drivers."""
    greeter = (ROOT / "tests" / "services" / "greeter.py").read_text("utf-8")
    pieces = blocks("python greeter")
    assert len(pieces) == 5
    assert [piece for piece in pieces if piece not in greeter] == []


def test_the_places_for_one_line_are_there() -> None:
    assert "SERVICES: tuple[Service[Any], ...] = (" in (SOURCE / "node.py").read_text("utf-8")
    assert "publish.register(app)" in (SOURCE / "cli" / "main.py").read_text("utf-8")
    assert "GUARDED_SERVICES" in (SOURCE / "broker" / "access.py").read_text("utf-8")


def test_the_command_is_one_with_the_options_of_a_connection() -> None:
    app = typer.Typer()
    app.command(name="other")(lambda: None)
    run("python command")["register"](app)
    tree: Any = typer.main.get_command(app)
    options = {option for parameter in tree.commands["greet"].params for option in parameter.opts}
    assert {"name", "--url", "--token-file"} <= options
    assert "greet" not in main.command().commands


def test_the_setting_is_checked() -> None:
    config = run("python setting")["SeatsConfig"]
    assert config().problems() == []
    assert [str(each) for each in config(seats_max=0).problems()] == [
        "seats.seats_max = 0: must be between 1 and 100000"
    ]


def test_the_scenario_holds() -> None:
    (block,) = blocks("toml")
    result = play(parse(block), 1)
    assert result.ok
    assert result.delivered > 100


def test_the_note_becomes_a_line() -> None:
    stream = io.StringIO()
    NodeLog("b1", stream=stream).heard("broker", run("python note")["SeatTaken"](4, "sensor-7"))
    assert stream.getvalue().endswith("b1 broker seat_taken link=4 entity=sensor-7\n")
