"""The systems under test: one file each, with how to start it and how to speak to it.

In:    a name.
Out:   its System.
State: none.
Not here: what is measured (route.py, latency.py, start.py).
"""

from __future__ import annotations

from benchmarks.peers.mosquitto import Mosquitto
from benchmarks.peers.nats import Nats
from benchmarks.peers.network import Linkable
from benchmarks.peers.ours import Heliograph
from benchmarks.peers.redis import Redis
from benchmarks.peers.system import System
from benchmarks.peers.zenoh import Zenoh

OURS = "ours"
SYSTEMS: dict[str, System] = {system.name: system for system in (Heliograph(), Nats(), Mosquitto(), Redis())}
LINKABLE: dict[str, Linkable] = {system.name: system for system in (Heliograph(), Nats(), Mosquitto(), Zenoh())}
