"""Hearings: what each link may hear and publish, for stores, which have to know it before they look for matches.

In:    links whose rules or rights have changed.
Out:   a Hearing for each request to stores.
State: the number of the last change. Each link has the number of its own (``Link.hears_as_of``).
Not here: the rules (access.py), the rights (rights.py), what a store does with it (stores/hearer.py).

Whatever a store sends about a reading returns the number. The broker drops what has an older one (stored_frames.py):
so nothing that a reader gets was chosen when it, or whoever had this session before, could hear more.
"""

from __future__ import annotations

from heliograph.broker.links import Link
from heliograph.broker.rights import Rights
from heliograph.wire.hearing import Hearing

CHANGES_BITS = 20  # an incarnation is a time in ms: a broker that restarts does not use a number again
INCARNATION_BITS = 42


class Hearings:
    """Describes what links may hear."""

    def __init__(self, incarnation: int, rights: Rights) -> None:
        self._rights = rights
        self._last = (incarnation & ((1 << INCARNATION_BITS) - 1)) << CHANGES_BITS

    def renew(self, link: Link) -> None:
        """The link is new, or may hear less than before."""
        self._last += 1
        link.hear_as_of(self._last)

    def of(self, link: Link) -> Hearing | None:
        """What the link may hear now; None for a service that has no session."""
        if link.table is None:
            return None
        profile = link.table.profile
        return Hearing(
            link.hears_as_of,
            link.identity.proof,
            profile.default,
            profile.heard,
            self._rights.heard(link.id),
            profile.spoken,
            self._rights.spoken(link.id),
        )
