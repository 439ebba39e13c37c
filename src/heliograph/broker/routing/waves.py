"""Waves: how a broker learns that everybody in reach has heard what it told.

In:    WAVE frames; word that an interest was heard, or that a neighbour is gone.
Out:   WAVE frames; a call when a wave that was started here has come back.
State: waves that pass through here, each for at most a few seconds; who waits for one of ours.
Not here: what is told (announcements.py, advertising.py, speaker.py).

A wave spreads over every link, and a broker answers to the one it heard it from first, once all others have answered
it. Links keep order, so what was told before the wave is known where the wave has been. A broker has one question under
way at a time; what is asked meanwhile is asked together, next. While one speaker takes over from another, the one that
is to speak answers when it does: a wave waits for its words, and for the ways to it.
"""

from __future__ import annotations

from collections.abc import Callable

from heliograph.broker.routing.ports import Neighbour, Port
from heliograph.broker.routing.seen import NS_PER_MS
from heliograph.broker.routing.speaker import Speaker
from heliograph.broker.routing.teller import Teller
from heliograph.broker.routing.view import View
from heliograph.errors import Reason
from heliograph.machine import Instant, Timers
from heliograph.wire import network as wire
from heliograph.wire.frames import Frame, Kind

WAVES_MAX = 4_096  # passing through at once, one per broker; of more we say nothing, and they end where they began
WAVES_PER_NEIGHBOUR_MAX = 1_024  # of them by way of one neighbour, so that none fills the table
WAVE_MS_MAX = 5_000  # a wave that was lost somewhere ends here


class Wave:
    """A wave that passes through here."""

    __slots__ = ("done", "key", "need", "source", "told", "waiting", "wide")

    def __init__(
        self,
        broker: int,
        number: int,
        wide: bool,
        need: tuple[int, int, int],
        source: Neighbour | None,
        done: Callable[[Wave, Instant], None] | None,
    ) -> None:
        self.key = (broker, number)
        self.wide = wide
        self.need = need  # speaker, incarnation, number: answer when this interest was heard
        self.told = (0, 0, 0)  # the same, as the answers so far say
        self.source = source
        self.done = done
        self.waiting: dict[int, None] = {}


class Waves:
    """The waves that pass through one broker."""

    def __init__(self, view: View, speaker: Speaker, teller: Teller, timers: Timers) -> None:
        self._view = view
        self._speaker = speaker
        self._teller = teller
        self._timers = timers
        self._waves: dict[tuple[int, int], Wave] = {}
        self._wave_number = view.map.me.incarnation << 16  # never that of a wave of an earlier life, still under way
        self._asking: list[Callable[[Instant], None]] = []  # to be called when our present question is answered
        self._waiting: list[Callable[[Instant], None]] = []  # … and the next one

    def look_again(self, gone: Neighbour | None, now: Instant) -> None:
        """An interest was heard, or a neighbour is gone: some wave may have waited for that."""
        for wave in list(self._waves.values()):
            self._answered(wave, gone, now)

    def when_known(self, done: Callable[[Instant], None], now: Instant) -> None:
        """Call ``done`` once every broker in reach knows what we told before this."""
        self._waiting.append(done)
        if not self._asking:
            self._ask(now)

    def _ask(self, now: Instant) -> None:
        """First our cluster is asked; its speaker answers with the number under which it told the view. Then
        everybody is asked, and answers when it has heard that number."""
        self._asking, self._waiting = self._waiting, []

        def ask_everybody(inner: Wave, now: Instant) -> None:
            self._start_wave(True, self._tell_askers, inner.told, now)

        self._start_wave(False, ask_everybody, (0, 0, 0), now)

    def _tell_askers(self, _: Wave, now: Instant) -> None:
        answered, self._asking = self._asking, []
        for done in answered:
            done(now)
        if self._waiting and not self._asking:
            self._ask(now)

    def _start_wave(
        self, wide: bool, done: Callable[[Wave, Instant], None], need: tuple[int, int, int], now: Instant
    ) -> None:
        self._wave_number += 1
        wave = Wave(self._view.me, self._wave_number, wide, need, None, done)
        self._waves[wave.key] = wave
        self._timers.set(("wave", wave.key), now + WAVE_MS_MAX * NS_PER_MS, lambda now: self._end_wave(wave, now))
        self._spread(wave, now)

    def receive(self, link: Port, frame: Frame, now: Instant) -> None:
        """A question that is answered when all whom we ask have answered; or such an answer."""
        neighbour = link.neighbour
        assert neighbour is not None
        body = wire.decode_wave(frame.payload)
        wave = self._waves.get((body.broker, body.number))
        if body.answer:
            if wave is not None:
                wave.told = max(wave.told, body.told)
                self._answered(wave, neighbour, now)
            return
        if wave is not None or body.broker == self._view.me:
            # It comes the other way round a loop: whoever asked first gets our answer.
            self._answer(neighbour, body.broker, body.number, body.wide, (0, 0, 0))
            return
        if self._is_full(neighbour):
            self._teller.refuse(Reason.REQUESTS_OVER_LIMIT)
            return
        wave = Wave(body.broker, body.number, body.wide, body.told, neighbour, None)
        self._waves[wave.key] = wave
        self._timers.set(("wave", wave.key), now + WAVE_MS_MAX * NS_PER_MS, lambda now: self._end_wave(wave, now))
        self._spread(wave, now)

    def _is_full(self, neighbour: Neighbour) -> bool:
        if len(self._waves) < WAVES_PER_NEIGHBOUR_MAX:
            return False
        passing = sum(wave.source is neighbour for wave in self._waves.values())
        return len(self._waves) >= WAVES_MAX or passing >= WAVES_PER_NEIGHBOUR_MAX

    def _spread(self, wave: Wave, now: Instant) -> None:
        cluster = self._view.map.me.cluster
        body = wire.encode(wire.Wave(wave.key[0], wave.key[1], wave.wide, False, wave.need))
        for neighbour in self._view.neighbours.values():
            reached = wave.wide or neighbour.cluster == cluster
            if neighbour is not wave.source and reached and not neighbour.suspected:
                wave.waiting[neighbour.broker] = None
                self._teller.put(neighbour, Kind.WAVE, body)
        self._answered(wave, None, now)

    def _answered(self, wave: Wave, neighbour: Neighbour | None, now: Instant) -> None:
        if neighbour is not None:
            wave.waiting.pop(neighbour.broker, None)
        if wave.waiting:
            return
        if not wave.wide and (due := self._speaker.due_for(wave.key[0])) is not None:
            if not due:
                return  # it has not said yet what the asker wants, but will
            wave.told = max(wave.told, due)
        if self._has_heard(wave.need):
            self._end_wave(wave, now)

    def _has_heard(self, need: tuple[int, int, int]) -> bool:
        """True if these words were heard, and count: a way leads to their speaker, or another speaks by now."""
        view = self._view
        speaker, *age = need
        if not speaker or speaker == view.me:
            return True
        owner = view.interests.owners.get((speaker, True))
        if owner is None or owner.age < tuple(age):
            return False
        return speaker in view.paths.parts or speaker in view.map.members or not owner.filters

    def _end_wave(self, wave: Wave, now: Instant) -> None:
        """It has passed, or was lost somewhere: nobody waits for ever."""
        if self._waves.pop(wave.key, None) is None:
            return
        self._timers.cancel(("wave", wave.key))
        if wave.source is not None and wave.source.link.neighbour is wave.source:
            self._answer(wave.source, *wave.key, wave.wide, wave.told)
        if wave.done is not None:
            wave.done(wave, now)

    def _answer(self, neighbour: Neighbour, broker: int, number: int, wide: bool, told: tuple[int, int, int]) -> None:
        self._teller.put(neighbour, Kind.WAVE, wire.encode(wire.Wave(broker, number, wide, True, told)))
