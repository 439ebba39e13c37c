"""Settings of resource discovery.

In:    values of the right type.
Out:   a frozen config with ``problems()``.
State: none.
Not here: what settings are (model/settings.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.model.settings import Problem, check, setting

RESOURCES = "resources"  # the name of the service and of its section


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcesConfig:
    """How resources are discovered through this broker."""

    enabled: bool = setting(True, "take part in resource discovery", reloads=False)
    deliver: str = setting(
        "similarity",
        "how answers come back unless a request says otherwise",
        choices=("similarity", "normal", "direct"),
        reloads=False,
    )
    cache_s: int = setting(  # the paper's 100 s; a requester chooses how much of it to use, by default nothing
        100, "how long answers are kept for requests that allow their age", least=0, most=86_400, reloads=False
    )
    deadline_ms: int = setting(
        2_000,
        "how long a request waits for hosting brokers unless it says otherwise",
        least=10,
        most=600_000,
        reloads=False,
    )
    lease_s_max: int = setting(3_600, "the longest lease of a resource", least=1, most=31_536_000, reloads=False)
    forget_s: int = setting(
        60, "after how long out of reach a hosting broker's resources are forgotten", least=1, reloads=False
    )
    resources_max: int = setting(1_000_000, "how many resources of the network are known here", least=1, reloads=False)
    resources_per_owner_max: int = setting(
        100_000, "how many resources one owner may have at this broker", least=1, reloads=False
    )
    attributes_per_owner_max: int = setting(  # the index of all brokers takes 1,024
        64,
        "how many different attributes the resources of one owner may name at this broker",
        least=1,
        most=256,
        reloads=False,
    )
    requests_max: int = setting(100_000, "how many requests are remembered at this broker", least=1, reloads=False)
    watches_per_client_max: int = setting(
        64, "how many continuous requests one client may have", least=1, most=100_000, reloads=False
    )
    direct_links_max: int = setting(
        32,
        "how many links to the brokers of requesters are kept for direct answers; 0: answers go along the path",
        least=0,
        most=10_000,
        reloads=False,
    )
    publish_updates: bool = setting(
        False, "publish the updates of resources hosted here on System/Resources topics", reloads=False
    )

    def problems(self, path: str = RESOURCES) -> list[Problem]:
        """Everything wrong with it."""
        return check(self, path)
