"""The front door: what is listed, what is imported, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from heliograph.cli import connection, payload, start
from heliograph.cli.shape import INTERRUPTED

from .conftest import Run
from .processes import broker

pytestmark = pytest.mark.req("O2")

COMMANDS = (
    "broker",
    "network",
    "publish",
    "subscribe",
    "request",
    "reply",
    "simulate",
    "demo",
    "config",
    "ca",
    "token",
    "version",
)
HEAVY = ("asyncio", "uvloop", "msgspec", "cryptography", "rich", "ssl", "socket", "tomllib", "psutil", "numpy", "json")


def test_without_arguments_the_commands_are_listed(run: Run) -> None:
    ran = run()

    assert ran.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in ran.out


def test_help_is_a_command_too(run: Run) -> None:
    assert run("help").out == run("--help").out


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom heliograph.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('LOADED', [name for name in {HEAVY!r} if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "LOADED []"


@pytest.mark.parametrize(
    "group",
    ["", "bdn", "broker", "broker link", "evaluate", "discover", "network", "config", "ca", "token", "pipeline"],
)
def test_every_command_is_described_in_one_whole_line(run: Run, group: str) -> None:
    ran = run(*group.split(), "--help")

    assert ran.code == 0
    listed = ran.out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert listed
    for line in listed:
        assert line.endswith("."), line
        assert not line.endswith("..."), line


def test_no_option_takes_a_secret(run: Run) -> None:
    for command in ("publish", "subscribe", "broker status"):
        words = run(*command.split(), "--help").out.split()
        assert "--token-file" in words
        assert not {"--token", "--password", "--secret"} & set(words)


def test_a_misspelt_command_is_not_understood(run: Run) -> None:
    ran = run("subscrbe")

    assert ran.code == 2
    assert "subscribe" in ran.err


def test_the_package_knows_its_version(run: Run) -> None:
    import heliograph

    assert heliograph.__version__ in run("version").out


def test_the_version_is_told(run: Run) -> None:
    ran = run("version", "--json")

    told = json.loads(ran.out)
    assert told["protocol"] == 1
    line = f"heliograph {told['heliograph']} ({told['kernels']} kernels, {told['hot_path']} hot path)\n"
    assert run("version").out == run("--version").out == line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("publish a/# x", "'a/#' is not a topic: a topic to publish on has no wildcards"),
        ("request a/+ x", "'a/+' is not a topic: a topic to publish on has no wildcards"),
        ("subscribe good a+", "'a+' is not a topic filter: '+' stands alone in its level"),
        ("reply a# --echo", "'a#' is not a topic filter: '#' stands alone and last"),
        ("simulate gone.toml", "gone.toml cannot be read: No such file or directory"),
        ("simulate gone", "gone: no such file, and no scenario of that name"),
        ("ca show gone.crt", "gone.crt cannot be read: No such file or directory"),
        ("publish a x --certificate gone.crt --key gone.key --url heliographs://127.0.0.1:1", "there is no such file"),
        ("publish a x --token-file a.token --url heliograph://127.0.0.1:1", "--token-file goes with --entity"),
        ("publish a x --entity e --token-file gone.token --url heliograph://127.0.0.1:1", "gone.token"),
    ],
)
def test_what_no_broker_could_help_with_is_told_before_one_is_looked_for(run: Run, arguments: str, told: str) -> None:
    ran = run(*arguments.split())

    assert ran.code == 2
    assert told in ran.err
    assert "dial_failed" not in ran.err


def test_text_that_the_terminal_cannot_show_is_escaped() -> None:
    program = "from heliograph.cli.main import prepare_streams; prepare_streams(); print('21 °C → ü └─ │')"
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "21 \\xb0C -> \\xfc `- |\n", "")


def test_ctrl_c_before_the_commands_are_loaded_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "heliograph.cli.main", SimpleNamespace(main=interrupted))
    with pytest.raises(SystemExit) as ended:
        start.main()
    assert ended.value.code == INTERRUPTED


@pytest.mark.filterwarnings("error")
def test_ctrl_c_before_the_loop_is_loaded_leaves_no_work_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    async def work() -> None:
        """Never begins."""

    begun = work()
    monkeypatch.setitem(sys.modules, "heliograph.live.loop", Interrupted("loop"))
    with pytest.raises(KeyboardInterrupt):
        connection.run(begun)
    assert begun.cr_frame is None, "closed"


def test_a_star_is_no_wildcard_and_a_remark_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    payload.check_filter("plant/*/x")
    assert "+ is any one level, # is the rest" in capsys.readouterr().err
    payload.check_filter("plant/*x/+")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_descriptor_never_becomes_a_socket(closed: str) -> None:
    program = "import os; from heliograph.cli import main; main.prepare_streams(); os._exit(os.open('/', 0))"
    ran = subprocess.run(["bash", "-c", f'"{sys.executable}" -c "{program}" {closed}'], check=False)
    assert ran.returncode > 2  # the number of the next descriptor


@pytest.mark.live
def test_closed_standard_input_is_an_error_and_no_empty_publication(tmp_path: Path) -> None:
    with broker(tmp_path) as (_, url):
        line = f'"{sys.executable}" -m heliograph.cli.main publish a - --url {url} <&-'
        ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (2, "heliograph: standard input is closed\n")


def test_a_reader_that_has_enough_is_no_failure() -> None:
    line = f'"{sys.executable}" -m heliograph.cli.main config show | head -1; exit ${{PIPESTATUS[0]}}'
    ran = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "# no settings file\n", "")
