"""Open watches of an asyncio client: news of services, handed to the part of the program that asked for them.

In:    requests for watches; the session's news and its end.
Out:   commands for the session; a call per piece of news.
State: by number, the function that hears the news of a watch.
Not here: what news mean (live/resources.py), which watch they belong to (client/watches.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from heliograph.client import commands
from heliograph.client.session import Session
from heliograph.errors import HeliographError, UsageError
from heliograph.live.calls import Calls

HearNews = Callable[[bytes | None], None]
"""Called with the news of a watch; with None when the link is gone on which it was."""


class OpenWatches:
    """The watches of one client."""

    def __init__(self, session: Session, calls: Calls) -> None:
        self._session = session
        self._calls = calls
        self._hears: dict[int, HearNews] = {}

    def __len__(self) -> int:
        return len(self._hears)

    @property
    def failure(self) -> HeliographError | None:
        """Why the client ended, unless the program closed it."""
        return self._session.error or self._calls.failure

    async def begin(self, service: str, body: dict[str, Any], hear: HearNews) -> int:
        """Ask a service for a watch, whose news go to ``hear`` until it ends. Returns the number of the watch."""
        number = self._calls.number()
        self._hears[number] = hear
        try:
            await self._calls.wait(commands.Ask(number, service, {**body, "watch": number}, watch=number), number)
        except BaseException:
            self.end(service, number)
            raise
        return number

    def forget(self, number: int) -> bool:
        """Hear no more news of a watch. False if the service need not be told."""
        if self._hears.pop(number, None) is None or self._session.ended:
            return False
        self._calls.tell(commands.EndWatch(number))
        return True

    def end(self, service: str, number: int) -> None:
        """End a watch, without waiting for the service."""
        if self.forget(number):
            with suppress(UsageError):  # too many requests are open: the watch ends with the link
                self._calls.tell(commands.Ask(self._calls.number(), service, {"do": "unwatch", "watch": number}))

    def hear(self) -> None:
        """Hand on what the session got."""
        for number, news in self._session.collect_watched():
            hear = self._hears.get(number)
            if hear is not None:
                hear(news)

    def fail(self) -> None:
        """The session has failed: no more news will come."""
        for hear in list(self._hears.values()):
            hear(None)
