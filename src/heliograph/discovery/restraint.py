"""Restraint: limits what is sent to an address that has not proven that it receives our datagrams.

In:    how many bytes came from which address; which addresses are proven or configured.
Out:   whether a datagram may be sent.
State: per unproven address the bytes that may still be sent there; of unknown addresses at most STRANGERS_MAX.
Not here: how an address is proven (brokers/search.py). Machines that answer each datagram by a shorter one
       (brokers/responder.py, brokers/directory.py) need no table.

The source address of a datagram may be forged. Until an address is proven, it gets at most three times the bytes that
came from it, so that an attacker cannot make us flood a third party. QUIC has the same limit (RFC 9000, section 8.1).
"""

from __future__ import annotations

from collections import OrderedDict

from heliograph.machine import Address

FACTOR = 3
STRANGERS_MAX = 64  # beyond this, the least recently heard address is forgotten, and gets nothing more


class Restraint:
    """The addresses of one search."""

    __slots__ = ("_kept", "_proven", "_strangers")

    def __init__(self) -> None:
        self._strangers: OrderedDict[Address, int] = OrderedDict()
        self._kept: dict[Address, int] = {}
        self._proven: set[Address] = set()

    def heard(self, address: Address, size: int) -> None:
        """Bytes came from this address."""
        if address in self._proven:
            return
        if address in self._kept:
            self._kept[address] += FACTOR * size
            return
        self._strangers[address] = self._strangers.pop(address, 0) + FACTOR * size
        if len(self._strangers) > STRANGERS_MAX:
            self._strangers.popitem(last=False)

    def keep(self, address: Address) -> None:
        """Do not forget this address when many others send: the search relies on it. The caller keeps few."""
        if address not in self._proven:
            self._kept.setdefault(address, self._strangers.pop(address, 0))

    def prove(self, address: Address) -> None:
        """The address receives our datagrams, or the settings or a proven party name it."""
        self._proven.add(address)
        self._kept.pop(address, None)
        self._strangers.pop(address, None)

    def left(self, address: Address) -> int | None:
        """How many bytes may still be sent there; None: no limit."""
        if address in self._proven:
            return None
        return self._kept.get(address, self._strangers.get(address, 0))

    def may(self, address: Address, size: int) -> bool:
        """True if a datagram of this size may be sent there; it counts as sent."""
        left = self.left(address)
        if left is None:
            return True
        if left < size:
            return False
        (self._kept if address in self._kept else self._strangers)[address] = left - size
        return True
