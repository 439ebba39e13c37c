"""Hosts: whether an address stays on this machine.

In:    a host as people write it: a number or a name.
Out:   is_loopback().
State: none.
Not here: parsing addresses (client/config.py, discovery/brokers/config.py), looking names up (live/resolver.py).
"""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """True if only this machine can reach that host. The only such name is "localhost"; "127.example" is not one."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
