"""The compiled parts have the protections that the compiler offers."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from tests.architecture.elf import RELRO, Elf, read_elf
from tests.architecture.house import SOURCE

pytestmark = pytest.mark.req("O6")

COMPILED = sorted(SOURCE.rglob("_*.so"))


def built(path: Path) -> Elf:
    found = read_elf(path.read_bytes())
    if found is None:
        pytest.skip(f"{path.name} is not an ELF file of 64 bits: its protections are not known to this test")
    return found


def test_there_is_something_to_look_at() -> None:
    if not COMPILED:
        pytest.skip("no compiled part: this machine has no C compiler, and Python takes their place")
    assert len(COMPILED) == len([*SOURCE.rglob("_*.c")])


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.name)
def test_tables_of_functions_are_read_only_once_loaded(path: Path) -> None:
    found = built(path)
    assert RELRO in found.segments
    assert found.binds_now


def test_an_overrun_of_a_buffer_on_the_stack_is_noticed() -> None:
    """Only functions with buffers are guarded, and of the three parts not all have such a function."""
    guarded = {path.name: "__stack_chk_fail" in built(path).symbols for path in COMPILED}
    if not COMPILED:
        pytest.skip("no compiled part: this machine has no C compiler, and Python takes their place")
    if "gcc" not in (sysconfig.get_config_var("CC") or "") and not any(guarded.values()):
        pytest.skip(f"built by {sysconfig.get_config_var('CC')}, which may have no stack protector")
    assert any(guarded.values()), guarded
