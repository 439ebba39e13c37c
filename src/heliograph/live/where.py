"""Where to connect: one rule for programs and commands.

In:    the address, network and search options of the program, the command line and the environment.
Out:   a connected Client; NotConnectedError that lists what was tried.
State: none.
Not here: the arguments of a program (live/connect.py), environment variables (live/environment.py), the search
          (live/discover.py, live/client_search.py).

The rule: a given address; otherwise the broker on this machine's default port; otherwise a search. If directories or
brokers were named, they are asked at once. With a network, the broker on the default port must belong to it, otherwise
the search follows. A broker that was just started may not listen yet, so attempts are repeated until the time is over.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from heliograph.client.config import PLAIN, SECURE, ClientConfig, Target
from heliograph.client.discover import LOCAL, Discover, Trust
from heliograph.client.refusals import RefusedPublication
from heliograph.client.session import Session
from heliograph.errors import NotConnectedError, Reason
from heliograph.live.client import Client, Follow
from heliograph.live.environment import default_port
from heliograph.live.publisher_file import PublisherFile, publishers_folder
from heliograph.live.tls import FreshContext, TlsContexts, TlsFiles
from heliograph.model.identity import entity_is_valid
from heliograph.notes import Note

if TYPE_CHECKING:  # a search loads more modules, and many programs need none
    from heliograph.live.client_search import ClientSearch

SECRET_BYTES = 32
HERE_MS_MAX = 2_500  # for the handshake with whatever listens at the default port: it may not be a broker
AGAIN_S = 0.1  # between attempts while no broker answers
SHORT_S = 0.6  # with less time left there is no further attempt: a search that is cut short tells little

Shows = Callable[[Target], tuple[str, str] | None]
"""The entity and token to show to a broker at this address, if any."""


class NoteGate:
    """Passes notes on to the program from a moment on."""

    def __init__(self, on_note: Callable[[Note], None], *, is_open: bool) -> None:
        self._on_note = on_note
        self._is_open = is_open

    def __call__(self, note: Note) -> None:
        """A note of the session."""
        if self._is_open:
            self._on_note(note)

    def open(self) -> None:
        """From now on notes are news."""
        self._is_open = True


@dataclass(slots=True, kw_only=True)
class Connector:
    """Finds one program's first broker."""

    config: ClientConfig  # its targets are the given addresses
    files: dict[str, Path | None] = field(default_factory=dict)
    server_name: str | None = None
    here: bool = False  # no address was given: the broker on the default port comes first
    search: Discover | None = None  # None: no search
    on_refused: Callable[[RefusedPublication], None] | None = None
    on_note: Callable[[Note], None] | None = None
    shows: Shows | None = None  # a credential that depends on the address
    publisher: str = ""  # a publisher whose secret and numbers are kept in a file …
    publishers: Path | None = None  # … in this folder

    async def open(self, timeout: float | None) -> Client:
        """Connect, within this many seconds; each attempt is made at least once."""
        if self.search is None:
            return await self._dial(self.config, timeout)
        until = None if timeout is None else monotonic() + timeout
        if not self.here:
            return await self._find(self.search, until)
        while True:
            try:
                return await self._here_or_found(self.search, until)
            except NotConnectedError as error:
                left = _left(until)
                if error.reason is not Reason.BROKER_NOT_FOUND or (left is not None and left < SHORT_S):
                    raise
            await asyncio.sleep(AGAIN_S if left is None else min(AGAIN_S, left))

    async def _here_or_found(self, search: Discover, until: float | None) -> Client:
        scheme = SECURE if self._trust.vouched else PLAIN
        target = Target(host=LOCAL, port=default_port(), secure=scheme == SECURE, server_name=self.server_name)
        try:
            return await self._dial(replace(self.config, targets=(target,), dial_ms_max=HERE_MS_MAX), 0, trying=True)
        except NotConnectedError as error:
            here = error
        try:
            return await self._find(search, until)
        except NotConnectedError as error:
            if error.reason is not Reason.BROKER_NOT_FOUND:
                raise
            said, *tried = error.detail.splitlines()
            if here.reason is Reason.DIAL_FAILED:
                lines = ["no broker found", f"  {here.detail}", f"  a search followed: {said}", *tried]
            else:
                lines = [here.detail, f"  a search followed: {said}", *tried]
            reason = error.reason if here.reason is Reason.DIAL_FAILED else here.reason
            raise NotConnectedError(reason, "\n".join(lines)) from None

    async def _find(self, search: Discover, until: float | None) -> Client:
        from heliograph.live.client_search import failed_there
        from heliograph.live.relocator import Relocator

        client_search = self._client_search(search)
        found = await client_search.run(_left(until))
        config = replace(self.config, targets=found.targets, network=found.result.network or self.config.network)
        if found.result.network:  # from now on the client stays in this network
            client_search = self._client_search(replace(search, network=found.result.network))
        try:
            return await self._dial(config, _left(until), partial(Relocator, search=client_search, found=found))
        except NotConnectedError as error:
            raise failed_there(found, error) from None

    async def _dial(
        self, config: ClientConfig, timeout: float | None, follow: Follow | None = None, *, trying: bool = False
    ) -> Client:
        """Connect to these targets. ``trying``: a failure is no news, since a search follows it."""
        if self.shows is not None and (shown := self.shows(config.targets[0])):
            config = replace(config, targets=config.targets[:1], entity=shown[0], token=shown[1])
        searched = self.search is not None  # it may move to a secure broker
        secure = (searched and self._trust.vouched) or any(target.secure for target in config.targets)
        tls = TlsContexts(fresh=FreshContext(TlsFiles(**self.files))) if secure else None
        numbers = None if not self.publisher else PublisherFile(self.publisher, self.publishers or publishers_folder())
        secret = secrets.token_bytes(SECRET_BYTES) if numbers is None else numbers.secret
        used = 0 if numbers is None else numbers.used
        session = Session(config, secret=secret, seed=secrets.randbits(64), used=used)
        heard = None if self.on_note is None else NoteGate(self.on_note, is_open=not trying)
        client = Client(session, tls, self.on_refused, heard, follow, numbers, self.files)
        await client._connect(timeout)
        if heard is not None:
            heard.open()
        client._desk.return_home()
        return client

    def _client_search(self, search: Discover) -> ClientSearch:
        from heliograph.live.client_search import ClientSearch

        name = self.config.name
        return ClientSearch(search, self._trust, name if entity_is_valid(name) else "", self.files, local=not self.here)

    @property
    def _trust(self) -> Trust:
        vouched = self.files.get("authority") is not None or self.server_name is not None
        return Trust(has_token=bool(self.config.token), vouched=vouched, server_name=self.server_name)


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - monotonic())
