"""The command: ``python -m benchmarks NAME [--quick] [--json]``.

In:    arguments.
Out:   a table, or with --json one JSON object as the last line of stdout; progress on stderr.
State: none.
Not here: the benchmarks themselves, one module each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from typing import Any

NAMES = ("route", "latency", "start", "sim")


def main() -> int:
    """Exit code 0 unless a run was wrong; a missed budget is a result like any other."""
    options = _parse()
    if options.name == "list":
        for name in NAMES:
            print(f"{name:10}{_says(name)}")
        return 0
    names = NAMES if options.name == "all" else (options.name,)
    results = {name: _run(name, options) for name in names}
    if options.json:
        whole = results[options.name] if options.name != "all" else {"name": "all", "results": results}
        print(json.dumps(whole))
    return 1 if any("error" in result for result in results.values()) else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Heliograph against other brokers."
    )
    parser.add_argument("name", choices=(*NAMES, "all", "list"), help="which benchmark; `list` says what each measures")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: within a minute")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--systems", help="only these, separated by commas: ours, nats, mosquitto, redis")
    parser.add_argument("--cases", help="only these cases of route, separated by commas")
    return parser.parse_args()


def _run(name: str, options: argparse.Namespace) -> dict[str, Any]:
    given = {"systems": options.systems, "cases": options.cases}
    chosen = {key: tuple(value.split(",")) for key, value in given.items() if value}
    module = importlib.import_module(f"benchmarks.{name}")
    try:
        result: dict[str, Any] = module.run(options.quick, **chosen)
    except _wrong() as error:
        print(f"{name}: {error}", file=sys.stderr)
        return {"name": name, "error": str(error)}
    if not options.json:
        print(f"\n{name}: {_says(name)}\n")
        print(module.show(result) if hasattr(module, "show") else json.dumps(result, indent=2))
    return result


def _wrong() -> tuple[type[Exception], ...]:
    from benchmarks.generator import RunError
    from benchmarks.peers.server import ServerError

    return (RunError, ServerError)


def _says(name: str) -> str:
    return str(getattr(importlib.import_module(f"benchmarks.{name}"), "SAYS", ""))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main())
