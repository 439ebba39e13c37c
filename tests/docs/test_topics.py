"""The walk-through of docs/how-to/create-and-find-topics.md does what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heliograph.cli.network_secure import environment, secure_url

PAGE = Path(__file__).parents[2] / "docs/how-to/create-and-find-topics.md"
BLOCK = re.compile(r"```console ?(\w*)\n(.*?)```", re.DOTALL)
PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)
BOTH = """alice = await heliograph.connect()
there = dict(line.split("=", 1) for line in open("bob.env").read().splitlines())
files = {name: there[f"HELIOGRAPH_{name.upper()}"] for name in ("certificate", "key", "authority")}
bob = await heliograph.connect(there["HELIOGRAPH_URL"], **files)
bob_pem = open(files["certificate"], "rb").read()
"""
EXAMPLE = Path(__file__).parents[2] / "examples/topics.py"
COMMAND = [sys.executable, "-m", "heliograph.cli.main"]
PATIENCE_S = 60


class Walk:
    """Runs the page's commands, in its order, as the people it names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.topic = ""
        self.url = ""
        self.background: subprocess.Popen[bytes] | None = None
        (folder / "hall.xml").write_text("<hall><floor>3</floor><sensors>12</sensors></hall>")
        (folder / "run").mkdir(mode=0o700)

    def environment(self, person: str) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("HELIOGRAPH")}
        plain |= {"XDG_RUNTIME_DIR": str(self.folder / "run"), "TOPIC": self.topic, "PYTHONUNBUFFERED": "1"}
        return plain | (environment(self.folder / "trial", self.url, person) if person else {})

    def run(self, line: str, person: str) -> str:
        shell = f'heliograph() {{ "{sys.executable}" -m heliograph.cli.main "$@"; }}; {line}'
        done = subprocess.run(
            ["bash", "-c", shell],
            cwd=self.folder,
            env=self.environment(person),
            capture_output=True,
            timeout=PATIENCE_S,
        )
        return (done.stdout + done.stderr).decode()

    def start(self, line: str, person: str) -> None:
        arguments = [part.strip("\"'").replace("$TOPIC", self.topic) for part in line.split()[1:]]
        with (self.folder / "background").open("wb") as output:
            self.background = subprocess.Popen(
                [*COMMAND, *arguments], cwd=self.folder, env=self.environment(person), stdout=output, stderr=output
            )
        self.wait_for("subscribed to")

    def program(self, text: str) -> str:
        """Run a fragment of a program as alice."""
        bob = environment(self.folder / "trial", self.url, "bob")
        (self.folder / "bob.env").write_text("".join(f"{name}={value}\n" for name, value in bob.items()))
        lines = ["import asyncio, heliograph", "async def main():", *(f"    {line}" for line in text.splitlines())]
        (self.folder / "program.py").write_text("\n".join([*lines, "asyncio.run(main())\n"]))
        return self.run(f'"{sys.executable}" program.py', "alice")

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while text not in (self.folder / "background").read_text():
            assert time.monotonic() < until, f"{text!r} never came: {(self.folder / 'background').read_text()}"
            time.sleep(0.1)

    def play(self, person: str, block: str) -> None:
        said = ""
        for line in block.strip().splitlines():
            if line.startswith("$ "):
                said = self.run(line[2:], person)
                if "network up" in line:
                    self.url = secure_url((self.folder / "trial/a1.log").read_text())
                    assert self.url, said
                if "topic create" in line:
                    self.topic = next(each for each in said.splitlines() if each.startswith("Topics/"))
            elif line.startswith("& "):
                self.start(line[2:], person)
            elif line.startswith("< "):
                self.wait_for(line[2:])
            else:
                assert line.removeprefix("! ") in said, f"{line!r} is not in: {said}"


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.req("T8")
@pytest.mark.req("T11")
def test_the_walk_through_works_as_written(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    try:
        *blocks, _ = BLOCK.findall(PAGE.read_text("utf-8"))  # the last one takes the network down, as we do
        for person, block in blocks:
            walk.play(person, block)
        owner, encrypted = PROGRAM.findall(PAGE.read_text("utf-8"))
        assert re.search(r"Topics/\S+ alice\n", walk.program(owner))
        assert "b'21.5'" in walk.program(f"{BOTH}{encrypted}")
        said = walk.run(f'"{sys.executable}" "{EXAMPLE}"', "alice")
        assert said == "21.5\nfound a topic of alice\n"
    finally:
        if walk.background is not None:
            walk.background.kill()
            walk.background.wait()
        walk.run("heliograph network down --dir trial", "")
    assert not (tmp_path / "trial").exists()
