"""The command: ``python -m benchmarks NAME [--quick] [--json]``.

In:    arguments.
Out:   a table, or with --json one JSON object as the last line of stdout; progress on stderr.
State: none.
Not here: the benchmarks themselves, one module each.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.cases import CASES
from benchmarks.generator import RunError
from benchmarks.peers import LINKABLE, SYSTEMS
from benchmarks.peers.server import ServerError

NAMES = (
    "route",
    "latency",
    "hop",
    "interest",
    "reroute",
    "start",
    "sim",
    "match",
    "xpath",
    "trust",
    "discover-broker",
    "vault",
    "store",
    "history",
    "topics",
    "resources",
    "spark",
    "monitor",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 unless a run was wrong; a missed budget is a result like any other."""
    options = _parse(arguments)
    if options.name == "list":
        for name in NAMES:
            print(f"{name:17}{_module(name).SAYS}")
        return 0
    results = {name: _run(name, options) for name in (NAMES if options.name == "all" else (options.name,))}
    if options.json:
        print(json.dumps({"name": "all", "results": results} if options.name == "all" else results[options.name]))
    return 1 if any("error" in result for result in results.values()) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    systems = {**SYSTEMS, **LINKABLE}
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Heliograph, and other brokers beside it."
    )
    parser.add_argument("name", choices=(*NAMES, "all", "list"), help="which one; `list` says what each measures")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: within a minute each")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--systems", type=_names(systems), help=f"only these of {','.join(systems)}")
    parser.add_argument("--cases", type=_names(CASES), help=f"only these cases of route: {','.join(CASES)}")
    return parser.parse_args(arguments)


def _names(known: dict[str, Any]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(known)}")
        return tuple(text.split(","))

    return parse


def _run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    module = _module(name)
    wanted = {"systems": options.systems, "cases": options.cases}
    taken = inspect.signature(module.run).parameters
    try:
        result: dict[str, Any] = module.run(
            options.quick, **{key: value for key, value in wanted.items() if value and key in taken}
        )
    except (RunError, ServerError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return {"name": name, "error": str(error)}
    if not options.json:
        print(f"\n{name}: {module.SAYS}\n\n{module.show(result)}")
    return result


def _module(name: str) -> Any:
    return importlib.import_module(f"benchmarks.{name.replace('-', '_')}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end too
    sys.exit(main())
