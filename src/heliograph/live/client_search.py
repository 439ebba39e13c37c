"""The client search: finds brokers for one client, first to connect and later to relocate.

In:    the options of a program, its credentials.
Out:   SearchOutcome: a result and the targets that this client may dial; NotConnectedError that lists what was tried.
State: none.
Not here: the search (live/discover.py), when to look again (client/relocation_policy.py), moving (live/relocator.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.client.config import Target
from heliograph.client.discover import Discover, Trust, targets_of
from heliograph.discovery.brokers.result import SearchResult
from heliograph.errors import NotConnectedError, Reason
from heliograph.live.discover import SETTLE_S, discover, failure_of, with_tried
from heliograph.live.environment import local_broker

if TYPE_CHECKING:
    from heliograph.trust.keyring import Keyring

_UNPROVEN = (
    "{count} found, but none that may see what this client shows: a token and what is meant for a named authority go "
    "only to brokers that a certificate proves (give authority, or the address of a broker)"
)


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """The targets of a client, and how they were found."""

    result: SearchResult
    targets: tuple[Target, ...]


class ClientSearch:
    """Looks for brokers with one set of options."""

    def __init__(
        self, options: Discover, trust: Trust, name: str, files: dict[str, Path | None], *, local: bool = True
    ) -> None:
        """``local``: if the options name no party to ask, the broker on this machine's default port is used as a
        last resort."""
        options.check()
        self.options = options
        self._trust = trust
        self._name = name
        self._files = files
        self._local = local

    async def run(self, seconds: float | None = None) -> SearchOutcome:
        """Search once, within this time; NotConnectedError if there is no broker that this client may use."""
        options = self.options
        if seconds is not None:  # a search ends within twice its time-out
            longest_ms = max(1, int(seconds * 500))
            options = replace(options, timeout_ms=min(longest_ms, options.timeout_ms or options.usual_timeout_ms))
        transports = ("tls",) if self._trust.vouched else ("tcp", "tls")
        keyring, local = self._keyring(), self._local
        patience_s = SETTLE_S if seconds is None else seconds
        result = await discover(
            options, name=self._name, transports=transports, keyring=keyring, local=local, patience_s=patience_s
        )
        brokers = (local_broker(),) if local and not options.names_somebody else options.brokers
        targets = targets_of(result, self._trust, brokers)
        if result.reason is Reason.NETWORKS_SEVERAL or not targets:
            raise self._failure(result)
        return SearchOutcome(result, targets)

    def _failure(self, result: SearchResult) -> NotConnectedError:
        if not result.found:
            return failure_of(result)
        count = len(result.findings) or "brokers of the list"
        return failure_of(replace(result, reason=Reason.CREDENTIAL_MISSING), _UNPROVEN.format(count=count))

    def _keyring(self) -> Keyring | None:
        """With an authority only signed answers count; without one no signature could be checked."""
        if self._files.get("authority") is None:
            return None
        from heliograph.config.keyring_files import load_keyring
        from heliograph.trust.config import TlsConfig

        return load_keyring(TlsConfig(**{what: str(path) for what, path in self._files.items() if path is not None}))


def failed_there(found: SearchOutcome, error: NotConnectedError) -> NotConnectedError:
    """The error if the brokers that were found do not accept us, with how they were found."""
    how = found.result.text or "no party answered"
    text = f"{error.detail}. The search said: {how}"
    return NotConnectedError(error.reason, with_tried(text, found.result.tried))
