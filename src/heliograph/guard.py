"""The guard: what raises in a unit of work that one peer caused costs that peer, never the node.

In:    an exception, and where, when and for which peer it was raised.
Out:   a note of level error, with the traceback once per place and minute; later ones are counted.
State: the places of the last minute, bounded.
Not here: what the peer loses (the part that calls the guard decides: a refusal, its link, or one publication); what
          raises outside such a unit, which stops the node (rule 11 of machine.py).

A unit is a frame, a datagram, an answer, or a request, also one that waited and is handled later. A part wraps a unit
in ``try``, which costs nothing while nothing raises; so the hot path has no other cost.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, TracebackType

from heliograph.notes import Note, WorkFailed

AGAIN_NS = 60_000_000_000  # between two tracebacks of one place
PLACES_MAX = 64  # remembered; the oldest is forgotten
FRAMES_SHOWN_MAX = 24  # of a traceback, the innermost
TEXT_LENGTH_MAX = 200  # of the exception's own text

Place = tuple[str, type[BaseException], CodeType | None, int]  # of the guard; what was raised, in which line


class Guard:
    """Writes down what was caught in one machine."""

    __slots__ = ("_latest", "_note", "_places")

    def __init__(self, note: Callable[[Note], None]) -> None:
        self._note = note
        self._latest = 0
        self._places: dict[Place, tuple[int, int]] = {}  # when it was told, and how often it was caught since

    def caught(self, where: str, error: Exception, now: int, link: int = 0, entity: str = "") -> None:
        """An exception was caught at ``where``. ``link`` and ``entity`` are the peer's, as far as they are known.

        A part that does not know the time passes 0.
        """
        now = self._latest = max(now, self._latest)
        code, line = _innermost(error.__traceback__)
        place = (where, type(error), code, line)
        told_at, since = self._places.get(place, (now - AGAIN_NS, 0))
        if now - told_at < AGAIN_NS:
            self._places[place] = (told_at, since + 1)
            return
        self._places.pop(place, None)
        if len(self._places) >= PLACES_MAX:
            del self._places[next(iter(self._places))]
        self._places[place] = (now, 0)
        self._note(WorkFailed(where, type(error).__name__, link, entity, since, _traceback(error)))


def _innermost(traceback: TracebackType | None) -> tuple[CodeType | None, int]:
    if traceback is None:
        return None, 0
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code, traceback.tb_lineno


def _traceback(error: Exception) -> str:
    """The calls, outermost first, and the exception. Without source lines: a machine reads no files."""
    calls: list[str] = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        calls.append(f"{'/'.join(code.co_filename.split('/')[-2:])}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    shown = calls if len(calls) <= FRAMES_SHOWN_MAX else ["…", *calls[-FRAMES_SHOWN_MAX:]]
    text = str(error)[:TEXT_LENGTH_MAX].encode(errors="replace").decode()
    return " > ".join((*shown, f"{type(error).__name__}: {text}"))
