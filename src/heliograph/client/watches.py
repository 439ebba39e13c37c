"""Watches: news that services of the broker send to this session, each for the watch that asked for them.

In:    watches that begin and end; SERVICE frames with news; lines that come into use or are lost.
Out:   news by the number of the watch, for the program to collect; None for a watch that ended with its link.
State: the open watches, each with its service and link; counters.
Not here: asking for a watch (client/service_requests.py), what news mean (discovery/resources/news.py).

Only the broker can send such a frame, and only for a service, so news need no topic and no subscription. A watch
belongs to a link: at another broker the program asks again.
"""

from __future__ import annotations

from heliograph.client.line import Line
from heliograph.machine import LinkId
from heliograph.wire.frames import Frame

News = tuple[int, bytes | None]


class ServiceWatches:
    """The watches of one session."""

    def __init__(self) -> None:
        self.unexpected = 0  # news of a watch that has ended
        self._open: dict[int, tuple[bytes, LinkId]] = {}
        self._news: list[News] = []

    def begin(self, line: Line, service: bytes, number: int) -> None:
        """The service is asked for a watch of this number."""
        self._open[number] = (service, line.id)

    def end(self, number: int) -> None:
        """The program wants no more news."""
        self._open.pop(number, None)

    def hear(self, line: Line, frame: Frame) -> None:
        """News; what belongs to no open watch is dropped and counted."""
        if self._open.get(frame.sequence) == (frame.topic, line.id):
            self._news.append((frame.sequence, frame.payload))
        else:
            self.unexpected += 1

    def use(self, line: Line | None) -> None:
        """Only this line is in use: watches of others have ended."""
        link = None if line is None else line.id
        for number in [number for number, (_, here) in self._open.items() if here != link]:
            self._lose(number)

    def lost(self, line: Line) -> None:
        """The line is gone, and its watches with it."""
        for number in [number for number, (_, link) in self._open.items() if link == line.id]:
            self._lose(number)

    def _lose(self, number: int) -> None:
        del self._open[number]
        self._news.append((number, None))

    def collect(self) -> list[News]:
        """News since the last call."""
        news = self._news
        if news:
            self._news = []
        return news

    def __len__(self) -> int:
        return len(self._open)
