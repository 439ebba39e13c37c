"""The locks: everything that is installed for development has a version and hashes, and nothing else has."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement

from tests.architecture.house import ROOT
from tests.architecture.lock import BUILD, BUILD_LOCK, LOCK, canonical, locked, pinned, requirements

pytestmark = pytest.mark.req("O6")

ELSEWHERE: tuple[str, ...] = ()  # needed on other platforms or Pythons only


def test_lock_and_constraints_agree() -> None:
    versions = {name: version for path in (BUILD_LOCK, LOCK) for name, (version, _) in locked(path).items()}
    assert versions == pinned(), "run make lock"
    assert tuple(locked(BUILD_LOCK)) == BUILD


def test_every_version_has_hashes() -> None:
    files = {**locked(BUILD_LOCK), **locked(LOCK)}
    assert [name for name, (_, hashes) in files.items() if not hashes or len(set(hashes)) != len(hashes)] == []
    lines = LOCK.read_text("utf-8").splitlines() + BUILD_LOCK.read_text("utf-8").splitlines()
    wanted = re.compile(r"#.*|    --hash=sha256:[0-9a-f]{64}(?: \\)?|[a-z0-9-]+==[0-9a-z.]+(?: ; [^\\]+)?(?: \\)")
    assert [line for line in lines if not wanted.fullmatch(line)] == []


def needed() -> dict[str, Requirement]:
    """Every project that '.[dev]' needs here, directly or not, as installed."""
    found: dict[str, Requirement] = {}
    extras: dict[str, set[str]] = {}
    waiting = [Requirement(text) for _, text in requirements()]
    while waiting:
        asked = waiting.pop()
        name = canonical(asked.name)
        more = {"", *asked.extras} - extras.get(name, set())
        if not more or (name not in extras and asked.marker is not None and not asked.marker.evaluate({"extra": ""})):
            continue
        found[name] = asked
        extras.setdefault(name, set()).update(more)
        for text in distribution(name).requires or ():
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in more):
                inner.marker = None
                waiting.append(inner)
    return found


def test_the_lock_is_complete_and_has_nothing_else() -> None:
    named = dict.fromkeys(locked(LOCK))
    direct = {name for name, _ in requirements()}
    assert sorted(direct - named.keys()) == []
    needs = needed()
    assert sorted(needs.keys() - named.keys() - set(BUILD)) == []
    assert sorted(named.keys() - needs.keys() - direct - set(ELSEWHERE)) == []


def test_what_is_installed_has_the_locked_version() -> None:
    wrong = {}
    for name, (version, _) in locked(LOCK).items():
        try:
            installed = distribution(name).version
        except PackageNotFoundError:
            continue  # for another platform
        if installed != version:
            wrong[name] = installed
    assert wrong == {}


def test_make_installs_nothing_without_a_hash() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    installs = [line.strip() for line in makefile.splitlines() if "pip install" in line or "$(PIP_INSTALL)" in line]
    assert [line for line in installs if "--require-hashes" not in line and "--no-deps" not in line] == [
        "PIP_INSTALL = $(RUN) -m pip install --disable-pip-version-check --no-build-isolation"
    ]
