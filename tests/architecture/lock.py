"""`make lock`: write the files of locks/ from constraints.txt, with the hashes of all files that the package index has.

In:    constraints.txt (names and versions), pyproject.toml (markers), and pip, for the index that it is set up for.
Out:   build.lock (pip and setuptools) and requirements.lock (everything else).
State: none.
Not here: whether they agree with each other and are complete (test_lock.py), installing them (Makefile).

A version's hashes of other platforms and Pythons are in the lock too, so it serves all of them. pip itself has no
command that tells them, so its own classes are used here; they are not a public interface, but pip is in the lock.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "locks" / "constraints.txt"
LOCK = ROOT / "locks" / "requirements.lock"
BUILD_LOCK = ROOT / "locks" / "build.lock"
PLATFORMS_LOCK = ROOT / "locks" / "platforms.lock"
PLATFORMS = ("4.0.1", "4.1.1", "4.2.1")  # of PySpark, that platforms bring; tests/pipeline/test_platforms.py tries them
BUILD = ("pip", "setuptools")  # needed before anything else can be installed or built
HEAD = """\
# Made by `make lock` from constraints.txt: do not edit. Installed by make with --require-hashes.
# Each version has the hashes of all files of it that the package index has, for every platform and Python.
"""


def canonical(name: str) -> str:
    """A project's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    """The names and versions of constraints.txt."""
    lines = (line.partition("#")[0].strip() for line in CONSTRAINTS.read_text("utf-8").splitlines())
    return {canonical(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def locked(path: Path) -> dict[str, tuple[str, list[str]]]:
    """The names of a lock, each with its version and hashes."""
    text = path.read_text("utf-8").replace("\\\n", " ")
    found = {}
    for line in (line.partition("#")[0].strip() for line in text.splitlines()):
        if line:
            name, _, rest = line.partition("==")
            version = re.split(r"[ ;]", rest, maxsplit=1)[0]
            found[canonical(name)] = (version, re.findall(r"--hash=sha256:([0-9a-f]{64})\b", rest))
    return found


def requirements() -> Iterator[tuple[str, str]]:
    """Every requirement of pyproject.toml, with all extras: its name, and the whole text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    for text in (text for group in groups for text in group):
        found = re.match(r"[A-Za-z0-9._-]+", text)
        assert found is not None
        if found[0] != project["name"]:
            yield canonical(found[0]), text


def main() -> None:
    """Write the locks."""
    index = _Index()
    markers = {name: text.partition(";")[2].strip() for name, text in requirements()}
    entries = {name: _entry(name, version, markers.get(name, ""), index) for name, version in sorted(pinned().items())}
    BUILD_LOCK.write_text(HEAD + "".join(entries.pop(name) for name in BUILD), "utf-8")
    LOCK.write_text(HEAD + "".join(entries.values()), "utf-8")
    older = [_entry("pyspark", version, "", index) for version in PLATFORMS]
    PLATFORMS_LOCK.write_text(HEAD + "".join(older), "utf-8")
    print(f"{LOCK.name}: {len(entries)} projects, {BUILD_LOCK.name}: {len(BUILD)}")


def _entry(name: str, version: str, marker: str, index: _Index) -> str:
    hashes = sorted(set(index.hashes(name, version)))
    assert hashes, f"the index has no file of {name} {version}"
    print(f"{name}=={version}: {len(hashes)} files")
    lines = [
        f"{name}=={version}" + (f" ; {marker}" if marker else ""),
        *(f"    --hash=sha256:{each}" for each in hashes),
    ]
    return " \\\n".join(lines) + "\n"


class _Index:
    """The index that pip is set up for."""

    def __init__(self) -> None:
        from pip._internal.commands import create_command
        from pip._internal.index.collector import parse_links
        from pip._internal.models.link import Link

        command: Any = create_command("download")
        options, _ = command.parse_args([])
        session = command._build_session(options)
        finder = command._build_package_finder(options, session)
        self._collector = finder._link_collector
        self._link, self._parse = Link, parse_links

    def hashes(self, name: str, version: str) -> Iterator[str]:
        """SHA-256 of every file of this version."""
        for url in self._collector.search_scope.get_index_urls_locations(name):
            page = self._collector.fetch_response(self._link(url))
            for link in () if page is None else self._parse(page):
                if link.hash_name == "sha256" and _is_of(link.filename, name, version):
                    yield link.hash


def _is_of(file: str, name: str, version: str) -> bool:
    from pip._vendor.packaging.utils import parse_sdist_filename, parse_wheel_filename
    from pip._vendor.packaging.version import Version

    try:
        found: Any = parse_wheel_filename(file) if file.endswith(".whl") else parse_sdist_filename(file)
    except ValueError:  # eggs and installers of old versions
        return False
    return bool(canonical(found[0]) == name and found[1] == Version(version))


if __name__ == "__main__":
    main()
