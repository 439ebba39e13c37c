"""Settings of a store.

In:    values of the right type.
Out:   StoreConfig, with ``problems()``.
State: none.
Not here: how the machine uses them (store.py), where vaults are opened (live/vaults/, sim/disk.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.model.settings import Problem, check, has_wrong, setting
from heliograph.model.topics import filter_fault
from heliograph.vault import NAME
from heliograph.wire.stores import PATTERNS_MAX

STORE = "store"  # the name of the service and of its section
KEEPS = ("all", "reliable")
STORE_NAME = "letters, digits, - and _, at most 40"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """What a store serves, where it keeps publications, and for how long."""

    enabled: bool = setting(False, "this broker has a store", reloads=False)
    name: str = setting("store", "the store's name, and that of its vault", allowed=STORE_NAME, reloads=False)
    patterns: tuple[str, ...] = setting(("#",), "what it serves", allowed="topic filters", reloads=False)
    place: str = setting(
        "",
        "where its vault is; empty: the folder heliograph-stores in the current one",
        allowed="a folder, or postgresql://…",
        reloads=False,
        is_place=True,
    )
    bytes_max: int = setting(
        0, "bytes on disk; beyond it publishers wait until something is forgotten; 0: no limit", least=0, reloads=False
    )
    intake_bytes_max: int = setting(
        64 << 20,
        "bytes in memory that are not on disk yet; from half of it on its broker is pressed",
        least=8 << 20,
        reloads=False,
    )
    keep: str = setting("all", "which publications are kept: all, or reliable ones only", choices=KEEPS, reloads=False)
    unsafe_ack: bool = setting(
        False, "acknowledge before the data is on disk: faster, and a crash loses acknowledged data", reloads=False
    )
    retain_s: int = setting(0, "seconds for which publications are kept; 0: for ever", least=0)
    retain_bytes: int = setting(0, "bytes of the newest publications that are kept; 0: all", least=0)
    staged_bytes_max: int = setting(
        0,
        "bytes of batches that are not committed; beyond it, those of whoever has most are dropped; 0: retain_bytes "
        "or a quarter of bytes_max, whichever is less, or 4 GiB if neither is set",
        least=0,
    )
    retain_acknowledged: bool = setting(
        True, "keep what all durable subscriptions have acknowledged, as long as the other limits say"
    )
    name_idle_s: int = setting(
        30 * 86_400,
        "seconds after which an unused durable subscription, or publisher of batches, is forgotten",
        least=60,
    )
    publisher_idle_s: int = setting(
        7 * 86_400, "seconds after which a publisher that is silent is forgotten", least=60, reloads=False
    )
    names_max: int = setting(
        10_000, "durable subscriptions; nobody gets more than are still free", least=1, most=1_000_000
    )
    names_per_entity_max: int = setting(
        1_000,
        "durable subscriptions of one entity or, of clients without credentials, one address",
        least=1,
        most=1_000_000,
    )
    channels_max: int = setting(1_024, "readings that are open at one time", least=1, most=65_536)
    advertise_ms: int = setting(5_000, "milliseconds between two advertisements", least=100, most=600_000)

    def problems(self, path: str = STORE) -> list[Problem]:
        """Everything wrong with it."""
        found = check(self, path)
        if not NAME.fullmatch(self.name):
            found.append(Problem(f"{path}.name", f" = {self.name!r}: {STORE_NAME}"))
        if not 0 < len(self.patterns) <= PATTERNS_MAX:
            found.append(Problem(f"{path}.patterns", f" must have 1 to {PATTERNS_MAX} filters"))
        for pattern in self.patterns:
            fault = filter_fault(pattern.encode())
            if fault is not None:
                found.append(has_wrong(f"{path}.patterns", pattern, fault))
        return found
