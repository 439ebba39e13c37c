"""Machine facts: this machine as a resource.

In:    nothing.
Out:   constant attributes (system, cores), values (memory, disk, load), and their ranges.
State: none.
Not here: registering it (cli/resource.py), the load of a broker's process (live/usage.py).
"""

from __future__ import annotations

import platform
from typing import Any

import psutil  # type: ignore[import-untyped]

GIB = 1 << 30


def machine_attributes() -> dict[str, Any]:
    """Attributes that do not change."""
    return {
        "system": platform.system().lower(),
        "machine": platform.machine(),
        "host": platform.node() or "unknown",
        "cores": psutil.cpu_count() or 1,
    }


def machine_ranges() -> str:
    """The ranges of the values; memory and disk in GiB."""
    return "memory >= 0 and disk >= 0 and cpu >= 0 and cpu <= 100 and load >= 0"


def machine_values() -> dict[str, float]:
    """The present values: free memory and disk in GiB, CPU in per cent, load over a minute."""
    return {
        "memory": round(psutil.virtual_memory().available / GIB, 2),
        "disk": round(psutil.disk_usage("/").free / GIB, 2),
        "cpu": psutil.cpu_percent(),
        "load": round(psutil.getloadavg()[0], 2),
    }
