"""Building the compiled parts, with every protection that the C compiler has.

In:    the compiler that setuptools has found.
Out:   the compiled parts that pyproject.toml lists, with the protections that compiler and linker accept.
State: none.
Not here: the list of compiled parts (pyproject.toml), which of them are used (kernels.py).

Only setuptools imports this, while it builds the package. It is part of the package so that source archives have it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

PROGRAM = "#include <string.h>\nint main(int n, char **v) { char b[16]; strncpy(b, v[0], 15); return b[n & 7]; }\n"
COMPILER = (["-fstack-protector-strong"], ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"])  # needs optimisation: -O3
LINKER = (["-Wl,-z,relro", "-Wl,-z,now"],)


class HardenedBuild(build_ext):
    """Builds with every protection that a small program can be built with."""

    def build_extensions(self) -> None:
        """Probe first; what the compiler does not know is left out."""
        compile_flags = [flag for flags in COMPILER if self._can_build(flags, []) for flag in flags]
        link_flags = [flag for flags in LINKER if self._can_build([], flags) for flag in flags]
        for extension in self.extensions:
            extension.extra_compile_args = [*extension.extra_compile_args, *compile_flags]
            extension.extra_link_args = [*extension.extra_link_args, *link_flags]
        super().build_extensions()

    def _can_build(self, compile_flags: list[str], link_flags: list[str]) -> bool:
        compiler: Any = self.compiler
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "probe.c"
            source.write_text(PROGRAM, "utf-8")
            try:
                flags = ["-O2", "-Werror", *compile_flags]
                objects = compiler.compile([str(source)], output_dir=os.sep, extra_postargs=flags)
                compiler.link_shared_object(objects, str(Path(folder) / "probe.so"), extra_postargs=link_flags)
            except (CompileError, LinkError):
                return False
        return True
