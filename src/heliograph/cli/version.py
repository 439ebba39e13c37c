"""`heliograph version`: prints the version.

In:    nothing.
Out:   the version, which kernels match subscriptions and which form the hot path has; with --json also the protocol's
       and Python's version.
State: none.
Not here: the numbers themselves (pyproject.toml, wire/).
"""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="version", help="Print the version.")(_version)


def show(*, as_json: bool) -> None:
    """Print it."""
    from importlib.metadata import version

    from heliograph.broker.hot import is_native
    from heliograph.matching.boxes.engines import in_use

    ours, kernels, path = version("heliograph"), in_use(), "native" if is_native else "python"
    if not as_json:
        print(f"heliograph {ours} ({kernels} kernels, {path} hot path)")
        return
    import json
    import platform

    from heliograph.wire.frames import VERSION

    facts = {
        "heliograph": ours,
        "protocol": VERSION,
        "python": platform.python_version(),
        "kernels": kernels,
        "hot_path": path,
    }
    print(json.dumps(facts))


def _version(as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False) -> None:
    show(as_json=as_json)
