"""What owners and requesters of resources do, drawn from a seed: plans for programs/resource_users.py.

In:    a random source, names of owners and requesters.
Out:   for each of them a list of pauses and calls.
State: which resources an owner has registered so far, and a number that makes the values of each update unique.
Not here: what is right (resource_history.py), carrying it out.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.independent.resource_history import CONDITIONS

Step = tuple[float, dict[str, Any]]
SYSTEMS = ("linux", "bsd")
MEMORY_MAXES = (8, 32, 64)
RESOURCES = 3  # of each owner


class Owner:
    """Registers, updates and withdraws its resources in turn."""

    def __init__(self, name: str, draw: Random, *, always_values: bool = False) -> None:
        self.name = name
        self._draw = draw
        self._always_values = always_values
        self._numbers = 0
        self._memory_max: dict[str, int] = {}  # of those that are registered
        self._models: dict[str, str] = {}

    def steps(self, count: int, pause_s: float) -> list[Step]:
        return [(self._draw.uniform(0, pause_s), self._call()) for _ in range(count)]

    def _call(self) -> dict[str, Any]:
        key = f"{self.name}-{self._draw.randrange(RESOURCES)}"
        if key not in self._memory_max:
            return self._register(key)
        if self._models[key] == "static" or self._draw.random() < 0.25:
            del self._memory_max[key]
            return {"do": "withdraw", "key": key}
        values = self._values(self._memory_max[key])
        if self._draw.random() < 0.1:
            return {"do": "update", "key": key, "values": {**values, "memory": 100}, "is_outside": True}
        return {"do": "update", "key": key, "values": values}

    def _register(self, key: str) -> dict[str, Any]:
        memory_max = self._memory_max[key] = self._draw.choice(MEMORY_MAXES)
        model = self._models.setdefault(key, "static" if self._draw.random() < 0.3 else "dynamic")
        values = self._values(memory_max)
        system = {"system": self._draw.choice(SYSTEMS)}
        options: dict[str, Any] = {"model": model, "attributes": system}
        if model == "static":
            options["attributes"] = {**system, **values}
        else:
            options["where"] = f"memory <= {memory_max} and load >= 0 and n >= 0"
            if self._always_values or self._draw.random() < 0.8:
                options["values"] = values
        return {"do": "register", "key": key, "memory_max": memory_max, "options": options}

    def _values(self, memory_max: int) -> dict[str, Any]:
        self._numbers += 1
        return {"memory": self._draw.randint(1, memory_max), "load": self._draw.randrange(7) / 2, "n": self._numbers}


def requests(draw: Random, count: int, pause_s: float) -> list[Step]:
    """Requests with default options, for the most part."""
    return [(draw.uniform(0, pause_s), {"do": "discover", "options": _options(draw)}) for _ in range(count)]


def _options(draw: Random) -> dict[str, Any]:
    options: dict[str, Any] = {"where": draw.choice(CONDITIONS).text}
    kind = draw.random()
    if kind < 0.2:
        return {**options, "model": "static"}
    if kind < 0.3:
        return {**options, "deliver": draw.choice(("direct", "normal"))}
    if kind < 0.4:
        return {**options, "best": draw.randint(1, 4), "order": draw.choice(("load", "memory desc"))}
    return options


def every_request() -> list[Step]:
    """Each condition once, of each model."""
    both = [{"where": condition.text, "model": model} for condition in CONDITIONS for model in ("dynamic", "static")]
    return [(0.0, {"do": "discover", "options": options}) for options in both]
