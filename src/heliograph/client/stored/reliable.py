"""Reliable publications: sent along a chain per store, repeated until the store has acknowledged them.

In:    PublishReliably commands; acknowledgements and answers of stores; lines that come into use; time.
Out:   EVENT frames in ``outgoing``; repeats on the line in use; settled requests.
State: a chain per store, commands that wait and until when, and the sequences that each request awaits.
Not here: chains themselves (chain.py), which store gets a publication (placing.py, whereabouts.py), frames
          (client/writer.py).

The order of the program is kept for each store. A command waits in its store's chain while the window is full or the
store is away, and those for other stores overtake it. A command that fails before it was sent takes those that wait
behind it for the same store with it, so that nothing is stored behind a hole.

A publication that has timed out for the program stays in the chain and is repeated: the store may have it, and later
publications are linked to it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from msgspec import structs

from heliograph.client.commands import PublishReliably
from heliograph.client.lines import Lines
from heliograph.client.outgoing import Outgoing
from heliograph.client.publisher import Publisher
from heliograph.client.refusals import Refusals
from heliograph.client.requests import OpenRequests
from heliograph.client.stored.calls import StoreCalls
from heliograph.client.stored.chain import ChainRun, OutgoingChain
from heliograph.client.stored.placing import Placing
from heliograph.client.stored.whereabouts import Whereabouts
from heliograph.errors import HeliographError, NotConnectedError, Reason, RefusedError, UsageError
from heliograph.machine import Instant, Timers
from heliograph.wire import bodies
from heliograph.wire.frames import Frame
from heliograph.wire.stores import Acknowledged, Attached, AttachPublisher, StoreAdvertisement, decode

STALL_NS = 1_000_000_000  # without progress at a store that owes acknowledgements; doubled up to the maximum
STALL_NS_MAX = 8_000_000_000
MOVED_NS = 50_000_000  # the same if the store's inbox may be another one than we know
REPEAT_BYTES_MAX = 1 << 20  # repeated at once
REPEAT_PAUSE_NS = 100_000_000  # before the same is repeated again
AWAY_NS = 1_000_000_000  # between two questions to a store that is away
WAITING_MAX = 65_536  # commands that have no place in a chain yet
CHAINS_MAX = 256


class StoreChain:
    """A chain, and what the session knows about its store."""

    __slots__ = (
        *("asked_at", "attached", "away", "chain", "known", "open"),
        *("repeated", "stall_ns", "state", "store", "waiting"),
    )

    def __init__(self, store: StoreAdvertisement) -> None:
        self.store = store
        self.chain = OutgoingChain()
        self.known = False  # the store has told where its end of the chain is
        self.attached = False  # … and where to acknowledge: at the present broker
        self.away = False  # the broker does not know the store, or not any more: publications wait
        self.asked_at: int | None = None  # the acknowledged sequence when we asked the store; None: not asked
        self.state = "open"
        self.stall_ns = STALL_NS
        self.repeated = (-1, 0)  # the sequence after which we last repeated, and when
        self.open: deque[tuple[int, int, PublishReliably]] = deque()  # first and last sequence of each command
        self.waiting: deque[PublishReliably] = deque()  # commands that wait for room

    def readdress(self, inbox: str) -> None:
        """The store takes parts of batches here now: a restart gave it another inbox. Empty: an older store."""
        if inbox and inbox != self.store.inbox:
            self.store = structs.replace(self.store, inbox=inbox)
            self.chain.readdress(inbox)

    def attach_again(self) -> None:
        """We have changed brokers: the store does not know where to send acknowledgements."""
        self.attached = False
        self.asked_at = None
        self.stall_ns = STALL_NS

    def ask(self) -> None:
        """The store is being asked for its end of the chain."""
        self.asked_at = self.chain.acknowledged

    def answered(self) -> int:
        """The store has answered, or will not; returns the acknowledged sequence at the time of asking."""
        asked_at, self.asked_at = self.asked_at or 0, None
        return asked_at

    def follow(self, have: int, asked_at: int) -> bool:
        """The store has everything up to ``have``. A lower answer is outdated if acknowledgements came since. Returns
        True if it has less than it had acknowledged when it was asked."""
        is_reset = self.known and have < asked_at
        if not self.known or have >= self.chain.acknowledged or have < asked_at:
            self.chain.follow(have)
        self.known = self.attached = True
        self.away = False
        return is_reset

    def progressed(self) -> None:
        """The store has acknowledged something."""
        self.stall_ns = STALL_NS

    def leave(self) -> None:
        """The broker does not know the store: it is asked for often, so that it is found soon when it is back."""
        self.attached = False
        self.away = True
        self.stall_ns = STALL_NS

    def stalled(self) -> None:
        """The store has acknowledged nothing: wait longer next time."""
        self.asked_at = None
        self.stall_ns = min(2 * self.stall_ns, STALL_NS_MAX)

    def may_repeat(self, now: Instant) -> bool:
        """False if the same was repeated a moment ago."""
        behind, at = self.repeated
        if behind == self.chain.acknowledged and now < at + REPEAT_PAUSE_NS:
            return False
        self.repeated = (self.chain.acknowledged, now)
        return True

    def is_in(self, state: str) -> None:
        """The store reports whether it accepts publications now."""
        self.state = state


class ReliablePublishing:
    """Publishes reliably for one session."""

    def __init__(
        self,
        window: int,
        publisher: Publisher,
        outgoing: Outgoing,
        lines: Lines,
        requests: OpenRequests,
        refusals: Refusals,
        calls: StoreCalls,
        timers: Timers,
    ) -> None:
        self._window = window
        self._publisher = publisher
        self._outgoing = outgoing
        self._lines = lines
        self._requests = requests
        self._refusals = refusals
        self._calls = calls
        self._timers = timers
        self._whereabouts = Whereabouts(calls, timers, self._found)
        self._chains: dict[str, StoreChain] = {}
        self._placing = Placing(self._whereabouts)
        self._queued: dict[PublishReliably, Instant] = {}  # not sent yet, here or in a chain, and until when they wait
        self._due: Instant | None = None  # when the first of these is looked after
        self._open: dict[PublishReliably, int] = {}  # with their numbers, in order, until they are settled
        self._count = 0
        self.durable = 0  # publications that stores have acknowledged
        self.repeated = 0

    def is_waiting(self, command: PublishReliably) -> bool:
        """True while a command waits for its store: for room in its window, or because it is away."""
        return command in self._queued

    @property
    def mark(self) -> int:
        """The number of the last command."""
        return self._count

    def is_durable(self, mark: int) -> bool:
        """True if every command up to this number is settled."""
        return not self._open or next(iter(self._open.values())) > mark

    # -- commands -----------------------------------------------------------------------------------------------

    def publish(self, command: PublishReliably, now: Instant) -> None:
        """Publish; the request is settled when the store has it on disk, or rejects it."""
        self._publisher.check(command)
        if len(self._open) >= WAITING_MAX:
            raise UsageError(f"more than {WAITING_MAX} reliable publications wait for their stores")
        if command.request:
            self._requests.open(command.request, now, lambda now: self._give_up(command, now), command.ms_max)
        self._count += 1
        self._open[command] = self._count
        self._queued[command] = until = self._requests.until(now, command.ms_max)
        store = self._placing.add(command, now)
        if store is not None:
            self._chain_of(store, now).waiting.append(command)
        self.pump(now)
        if command in self._queued and (self._due is None or until < self._due):
            self._due = until
            self._timers.set("reliable", until, self._look_after)

    def pump(self, now: Instant) -> None:
        """Publish the commands whose turn has come."""
        for chain in self._chains.values():
            self._fill(chain, now)

    def _found(self, topic: str, error: HeliographError | None, now: Instant) -> None:
        """The store of a topic is known, or there is none."""
        if error is not None:
            for command in self._placing.remove(topic):
                self._settle(command, error)
        self._review(now)

    def _review(self, now: Instant) -> None:
        """More is known about stores."""
        for command, store in self._placing.review(now):
            self._chain_of(store, now).waiting.append(command)
        self.pump(now)

    def _chain_of(self, store: StoreAdvertisement, now: Instant) -> StoreChain:
        chain = self._chains.get(store.store)
        if chain is None:
            if len(self._chains) >= CHAINS_MAX:
                self._chains = {name: one for name, one in self._chains.items() if one.open or one.waiting}
            chain = self._chains[store.store] = StoreChain(store)
            self._attach(chain, now)
        elif chain.away and not chain.waiting and not chain.open:
            self._attach(chain, now)
        return chain

    def _fill(self, chain: StoreChain, now: Instant) -> None:
        """Publish what waits for this store while its window is open."""
        waiting, outgoing = chain.waiting, self._outgoing
        while waiting and chain.known and not chain.away and chain.state == "open" and outgoing.has_room:
            if chain.chain.frames and chain.chain.frames + len(waiting[0].payloads) > self._window:
                break
            self._write(chain, waiting.popleft(), now)

    def _write(self, chain: StoreChain, command: PublishReliably, now: Instant) -> None:
        self._queued.pop(command, None)
        try:
            first, run = self._publisher.publish_linked(command, chain.store, chain.chain.last, now)
        except UsageError as error:  # the present broker's limits are lower than those of the one before
            self._settle(command, error)
            return
        last = first + len(command.payloads) - 1
        is_moved = command.store is not None and command.store.inbox != chain.store.inbox
        if is_moved or not chain.open:
            self._watch(chain, MOVED_NS if is_moved else chain.stall_ns, now)
        chain.chain.add(ChainRun(command.topics, first, last, run))
        chain.open.append((first, last, command))

    # -- failing ------------------------------------------------------------------------------------------------

    def _look_after(self, now: Instant) -> None:
        """Commands that were not sent in time fail, whether the program awaits them or not."""
        self._due = None
        for command in [command for command, until in self._queued.items() if until <= now]:
            self._give_up(command, now)
        if self._queued:
            self._due = min(self._queued.values())
            self._timers.set("reliable", self._due, self._look_after)

    def _give_up(self, command: PublishReliably, now: Instant) -> None:
        """The command timed out. If it was not sent yet it never will be, nor will what waits behind it."""
        if command not in self._queued:
            return
        for chain in self._chains.values():
            if command in chain.waiting:
                text = f"the store {chain.store.name} was away, or its window full, for too long"
                self._fail_from(chain.waiting.index(command), chain, NotConnectedError(Reason.TIME_OUT, text))
                return
        for one in self._placing.remove(command.topic, command):
            self._settle(one, NotConnectedError(Reason.TIME_OUT, f"no answer which store serves {one.topic!r}"))
        self._review(now)

    def _fail_from(self, place: int, chain: StoreChain, error: HeliographError) -> None:
        """What waits for a store from this place on fails."""
        failed = list(chain.waiting)[place:]
        for _ in failed:
            chain.waiting.pop()
        for command in failed:
            self._settle(command, error)

    def _settle(self, command: PublishReliably, error: HeliographError) -> None:
        """The command failed: it will never be stored."""
        self._close(command)
        command.fail(error)
        if command.request:
            self._requests.settle(command.request, error=error)
        else:
            reason, text = Reason.GOODBYE, str(error)
            if isinstance(error, RefusedError | NotConnectedError):
                reason, text = error.reason, error.detail
            self._refusals.add(bodies.Refusal(reason.word, reason, text, command.topic))

    def _close(self, command: PublishReliably) -> None:
        self._open.pop(command, None)
        self._queued.pop(command, None)

    # -- attaching ----------------------------------------------------------------------------------------------

    def resume(self, now: Instant) -> None:
        """A broker has welcomed us: ask stores to acknowledge to our inbox there, and how far they are."""
        self._whereabouts.resume(now)
        for chain in self._chains.values():
            chain.attach_again()
            self._attach(chain, now)

    def _attach(self, chain: StoreChain, now: Instant, again: bool = False) -> None:
        """Ask a store how far it is. Do not repeat yet what this broker gets for the first time now."""
        upto = self._outgoing.sent_to if again else self._outgoing.confirmed

        def answered(answer: Any, now: Instant) -> None:
            chain.readdress(answer.inbox)
            self._whereabouts.use(chain.store, now)
            if chain.follow(answer.have, chain.answered()):
                self._tell_reset(chain)
            self._acknowledged(chain, now)
            self._repeat(chain, upto, now)
            self.pump(now)

        def failed(error: HeliographError, now: Instant) -> None:
            chain.answered()
            if isinstance(error, RefusedError):
                self._not_attached(chain, error, now)

        self._watch(chain, chain.stall_ns, now)
        if self._calls.ask(AttachPublisher(chain.store.store), Attached, answered, failed):
            chain.ask()

    def _not_attached(self, chain: StoreChain, error: RefusedError, now: Instant) -> None:
        store = chain.store.store
        if error.reason is Reason.STORE_MISSING:  # it was forgotten
            self._whereabouts.forget(store)
            self._abandon(chain, error)
            return
        if error.reason is Reason.ASK_DENIED:
            self._fail_from(0, chain, error)
        self._whereabouts.doubt(store)
        if error.reason is Reason.STORE_UNKNOWN:
            chain.leave()
            self._watch(chain, AWAY_NS, now)

    def _abandon(self, chain: StoreChain, error: HeliographError) -> None:
        """The store will not come back: nothing waits for it any longer."""
        self._fail_from(0, chain, error)
        while chain.open:
            self._settle(chain.open.popleft()[2], error)
        self._timers.cancel(("chain", chain.store.store))
        self._chains.pop(chain.store.store, None)

    def _tell_reset(self, chain: StoreChain) -> None:
        """Publications that were acknowledged are gone: the program is told with the next refusals."""
        reason = Reason.STORE_RESET
        text = f"the store {chain.store.name} has less than it acknowledged: it was replaced, or its vault was lost"
        self._refusals.add(bodies.Refusal(reason.word, reason, text, ""))

    def _watch(self, chain: StoreChain, wait_ns: int, now: Instant) -> None:
        self._timers.set(("chain", chain.store.store), now + wait_ns, lambda now: self._stalled(chain, now))

    def _stalled(self, chain: StoreChain, now: Instant) -> None:
        """The store was silent for a while: ask it how far it is, and repeat the rest."""
        if chain.open or chain.waiting:
            chain.stalled()
            self._attach(chain, now, again=True)

    # -- acknowledgements ---------------------------------------------------------------------------------------

    def heard(self, frame: Frame, now: Instant) -> None:
        """A STORED frame with an acknowledgement. ProtocolError if it makes no sense."""
        chain = self._chains.get(f"{frame.origin:016x}")
        told = decode(Acknowledged, frame.payload) if frame.payload else Acknowledged()
        if chain is None or not chain.known or frame.sequence > self._outgoing.assigned:
            return
        chain.is_in(told.state)
        chain.away = False
        broken = False
        for sequence, code in told.refused:
            if code == Reason.CHAIN_BROKEN:
                broken = broken or sequence == chain.chain.oldest
            else:
                self._refused(chain, sequence, bodies.reason_of(code))
        if chain.chain.acknowledge(frame.sequence):
            self._acknowledged(chain, now)
        if broken:  # a late publication of an earlier incarnation
            chain.chain.restart()
            self._repeat(chain, self._outgoing.sent_to, now)
        if told.missing and frame.sequence >= chain.chain.acknowledged:
            chain.chain.follow(frame.sequence)
            self._repeat(chain, told.missing, now)
        self.pump(now)

    def _acknowledged(self, chain: StoreChain, now: Instant) -> None:
        done, had = chain.chain.acknowledged, len(chain.open)
        while chain.open and chain.open[0][1] <= done:
            first, last, command = chain.open.popleft()
            self._close(command)
            self.durable += len(command.payloads)
            self._requests.settle(command.request, (int(chain.store.store, 16), first, last))
        if len(chain.open) < had:
            chain.progressed()
        if chain.open or chain.waiting:
            self._watch(chain, chain.stall_ns, now)
        else:
            self._timers.cancel(("chain", chain.store.store))

    def _refused(self, chain: StoreChain, sequence: int, reason: Reason) -> None:
        for place, (first, last, command) in enumerate(chain.open):
            if first <= sequence <= last:
                self._settle(command, RefusedError(reason, f"the store does not keep it: {command.topic!r}"))
                del chain.open[place]
                return

    def denied(self, topic: str, error: HeliographError, now: Instant) -> None:
        """The broker accepts nothing on this topic, so the store will never see it: the chain continues without it."""
        for chain in self._chains.values():
            if not chain.chain.drop(topic):
                continue
            for entry in [entry for entry in chain.open if topic in entry[2].topics]:
                chain.open.remove(entry)
                self._settle(entry[2], error)
            self._repeat(chain, self._outgoing.sent_to, now)
            self.pump(now)

    # -- repeating ----------------------------------------------------------------------------------------------

    def _repeat(self, chain: StoreChain, upto: int, now: Instant) -> None:
        line = self._lines.current
        if line is None or not line.flows or not chain.may_repeat(now):
            return
        repeats = chain.chain.repeats(upto, REPEAT_BYTES_MAX)
        if repeats:
            self.repeated += len(repeats)
            self._lines.pump(line)
            line.out.extend(repeats)

    def end(self) -> None:
        """The session has ended."""
        self._open.clear()
        self._queued.clear()
        self._placing.clear()
        self._chains.clear()

    def report(self) -> dict[str, Any]:
        """For the session's report."""
        return {
            "durable": self.durable,
            "repeated": self.repeated,
            "waiting": len(self._queued),
            "stores": [
                {
                    "store": chain.store.store,
                    "name": chain.store.name,
                    "state": chain.state,
                    "acknowledged": chain.chain.acknowledged,
                    "unacknowledged": chain.chain.frames,
                }
                for chain in self._chains.values()
            ],
        }
