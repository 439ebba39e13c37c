"""Roaming: a planned move from a broker that drains, or to a better one, with nothing lost, repeated or out of order.

In:    the draining broker's word where else to go, or a search's; the life of the second link.
Out:   a dial; subscriptions on a second line; in the end that line is the one in use.
State: where the session could go, the line that rises, what was delivered on it so far.
Not here: finding a broker after a link was lost (client/reach.py), frames (client/conversation.py).
Paper: [grid] §1.1, roaming clients (N8).

A move goes from mark to mark: a mark is a subscription that is confirmed when every broker in reach has heard of it,
and that stands, on each link between brokers, behind everything that was sent there before.

1. Looking. When the next broker has welcomed us, the present one is asked for a mark, so that everybody knows of the
   newest subscription there, too; then the next one for all subscriptions and a mark. Nothing else changes so far: the
   present line is used as before, only new subscriptions wait, and what the next broker delivers is kept back.
2. Moving. Every broker now sends us what we want both ways. New publications wait. The present broker is asked to take
   us out of groups (which choose one of their members), to confirm what we published, and for a mark: behind it
   nothing is on its way to us that the next broker does not deliver too, and nothing of ours is still on its way that
   what we publish there could overtake. Then the next line is the one in use; what it delivered twice is dropped by its
   id. The old one stays while it owes answers.

This is exact where one way leads from each broker to each other. In a network with loops a mark comes by the fastest
way, and a publication by the shortest: one that takes more than two hops, all of them slower than another way, could
still be overtaken, or missed.

Should the next broker fail, the one named after it is tried; if none is left, the session leaves and reconnects as
after any other goodbye. Should the present broker end before its time, the next one is used at once.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from ipaddress import ip_address
from typing import TYPE_CHECKING

from heliograph.client.config import Target, is_loopback, parse_target, stays_here
from heliograph.client.line import Line
from heliograph.client.requests import NS_PER_MS
from heliograph.client.rooms import Rooms
from heliograph.client.subscriptions import NUMBER_MAX
from heliograph.errors import Reason, RefusedError, UsageError
from heliograph.machine import Dial, Instant, LinkId, Peer, Ticket
from heliograph.notes import DialFailed, SessionRoamed
from heliograph.wire.bodies import Goodbye

if TYPE_CHECKING:
    from heliograph.client.conversation import Conversation

OTHERS_MAX = 8  # addresses of one goodbye that are looked at
KEPT_BYTES_MAX = 16 << 20  # deliveries of the next broker, until they may be read; beyond it that broker is given up
ADVICE_PAUSE_NS = 60_000 * NS_PER_MS  # after a move: brokers that advise more often are not heeded
MOVE_MS_MAX = 20_000  # for a move to a better broker; the present one is not in a hurry


class Step(Enum):
    """How far a move is."""

    STAYING = 1
    LOOKING = 2
    MOVING = 3


class Roaming:
    """Moves a session from one broker to another."""

    def __init__(self, rooms: Rooms, conversation: Conversation) -> None:
        self._rooms = rooms
        self._conversation = conversation
        self.allowed = True  # not while the session itself is about to end
        self.count = 0  # moves so far
        self.line: Line | None = None  # the one that rises
        self.ticket: Ticket | None = None  # the dial under way
        self._step = Step.STAYING
        self._candidates: deque[Target] = deque()
        self._target: Target | None = None
        self._ends_at: Instant = 0  # when the present broker will be gone
        self._may_stay = False  # the present broker would keep us: the move is our own wish
        self._advised = False  # … because the present broker is overloaded
        self._moved_at: Instant | None = None
        self._mark = NUMBER_MAX  # the number of the next mark; they count down, far from the program's own
        self._awaited = 0  # the answer that ends this step
        self._kept: list[bytes] = []
        self._kept_bytes = 0

    @property
    def is_active(self) -> bool:
        """True between the present broker's goodbye and the end of the move."""
        return self._step is not Step.STAYING

    @property
    def settles(self) -> bool:
        """True while subscriptions are carried over: new ones wait until that is done."""
        return self.line is not None and self.line.welcomed_at is not None

    @property
    def inbox(self) -> str:
        """Where answers to new requests should go, once we are about to leave the present broker; else empty."""
        return self.line.inbox if self._step is Step.MOVING and self.line is not None else ""

    # -- looking ------------------------------------------------------------------------------------------------

    def begin(self, line: Line, body: Goodbye, now: Instant) -> bool:
        """The broker goes away. False if it names nobody to whom we would go."""
        if self.is_active:
            self._may_stay = self._advised = False
            self._ends_at = min(self._ends_at, now + body.grace_ms * NS_PER_MS)
            return True
        candidates = successors(line.target, body.others, bool(self._rooms.config.token))
        self._conversation.owner.hinted(candidates)
        if not candidates or not self.allowed:
            return False
        self._look(candidates, now + body.grace_ms * NS_PER_MS, now)
        return True

    def advised(self, line: Line, body: Goodbye, now: Instant) -> None:
        """The broker is overloaded and names others. Whoever has just moved stays, whatever it is told."""
        if self._moved_at is not None and now - self._moved_at < ADVICE_PAUSE_NS:
            return
        candidates = successors(line.target, body.others, bool(self._rooms.config.token))
        if not self.is_active:
            self._advised = True
            self.move(line, [target for target in candidates if target != line.target], now)
            self._advised = self.is_active

    def move(self, line: Line, candidates: list[Target], now: Instant) -> None:
        """Go to a better broker, though the present one would keep us; if that does not work out, stay."""
        if candidates and self.allowed and not self.is_active:
            self._may_stay = True
            self._look(candidates, now + MOVE_MS_MAX * NS_PER_MS, now)

    def _look(self, candidates: list[Target], ends_at: Instant, now: Instant) -> None:
        self._step = Step.LOOKING
        self._candidates = deque(candidates)
        self._ends_at = ends_at
        self._rooms.timers.set("roam", (now + ends_at) // 2, self._too_late)
        self._try_next(now)

    def _try_next(self, now: Instant) -> None:
        if not self._candidates:
            self._give_up(now)
            return
        self._target = target = self._candidates.popleft()
        dial = Dial(target.host, target.port, target.secure, target.server_name)
        self.ticket = self._rooms.outbox.dial(dial)
        at = now + self._rooms.config.dial_ms_max * NS_PER_MS
        self._rooms.timers.set("roam dial", at, lambda now: self.failed(Reason.TIME_OUT, now))

    def failed(self, reason: Reason, now: Instant) -> None:
        """The dial did not succeed."""
        self._forget_candidate(reason)
        self._try_next(now)

    def attached(self, link: LinkId, peer: Peer, now: Instant) -> None:
        """The dial made a link."""
        assert self._target is not None
        self._rooms.timers.cancel("roam dial")
        self.ticket = None
        if self._rooms.config.token and not self._target.secure and not stays_here(peer.address):
            self._rooms.outbox.hang_up(link, Reason.CREDENTIAL_MISSING)  # the token is not for those on the way
            self.failed(Reason.CREDENTIAL_MISSING, now)
            return
        self.line = self._conversation.begin(link, self._target, now, rising=True, advised=self._advised)

    def welcomed(self, line: Line, now: Instant) -> None:
        """The next broker takes us. Who subscribes to nothing need not wait until everybody knows that."""
        present = self._conversation.line
        if not line.inbox or present is None or not present.inbox:
            self._conversation.hang_up(line, Reason.GOODBYE, "there are no inboxes")
        elif self._rooms.subscriptions.everything():
            self._set_mark(present)
        else:
            self._move(now)

    def asked_all(self, line: Line, now: Instant) -> None:
        """The next broker was asked for everything that the present one has."""
        self._set_mark(line)

    def refused(self, line: Line, error: RefusedError, now: Instant) -> None:
        """The next broker denies us something that the present one allows: it is not the right one."""
        self._conversation.hang_up(line, Reason.GOODBYE, f"you refuse {error.reason.word}")

    def keep(self, line: Line, raw: bytes) -> None:
        """A delivery that came too early: what is on its way by the present broker comes first."""
        self._kept.append(raw)
        self._kept_bytes += len(raw)
        if self._kept_bytes > KEPT_BYTES_MAX:
            self._conversation.hang_up(line, Reason.GOODBYE, "too much came before everybody knew that we are here")

    # -- moving -------------------------------------------------------------------------------------------------

    def passed(self, line: Line, answer: int, now: Instant) -> None:
        """A mark was answered."""
        if answer != self._awaited or self.line is None:
            return
        self._awaited = 0
        if self._step is Step.MOVING:
            self._complete(now)
            return
        self._conversation.asking.part(line, self._mark)
        if line is self.line:
            self._move(now)
        else:
            self._conversation.asking.ask_for_all(self.line, now)

    def _set_mark(self, line: Line) -> None:
        self._mark -= 1
        self._awaited = self._conversation.asking.mark(line, self._mark)

    def _move(self, now: Instant) -> None:
        """Everybody knows that we are at the next broker, too."""
        conversation, present, following = self._conversation, self._conversation.line, self.line
        if present is None or not present.is_ready or following is None:
            return  # it broke just now; ``take_over`` follows
        self._step = Step.MOVING
        conversation.hold(following, True, now)
        conversation.pump(present)
        present.leaving = True
        for wish in self._rooms.subscriptions:
            if wish.group and wish.number in present.asked and not wish.ending:
                conversation.asking.part(present, wish.number)
        present.out.append(self._rooms.outgoing.ping(present.pings.ping))
        self._set_mark(present)
        self._rooms.timers.set("roam", self._last_moment(now), self._too_late)

    def _complete(self, now: Instant) -> None:
        conversation, present, following = self._conversation, self._conversation.line, self.line
        assert present is not None
        assert following is not None
        at, kept = self._last_moment(now), self._stay()
        self.count += 1
        self._moved_at = now
        self._rooms.outbox.note(SessionRoamed(str(present.target), str(following.target)))
        conversation.adopt(following, kept, now, planned=True)
        conversation.leave_at(present, at)

    # -- when it does not go well -------------------------------------------------------------------------------

    def lost(self, line: Line, reason: Reason, now: Instant) -> None:
        """A line beside the one in use is gone."""
        if line is not self.line:
            return
        self.line = None
        self._forget_candidate(line.said[0] if line.said is not None else reason)
        if self._step is Step.MOVING:
            self._go_back(now)
        self._try_next(now)

    def take_over(self, now: Instant) -> bool:
        """The present line is gone before the move was over. True if the next one could take its place."""
        following = self.line
        if not self.is_active:
            return False
        if following is None or not following.is_ready:
            self.stop()
            return False
        everything = self._rooms.subscriptions.everything()
        following.restoring = {wish.number for wish in everything} - following.in_force
        self._conversation.adopt(following, self._stay(), now, planned=False)
        return True

    def stop(self) -> None:
        """Stay where we are."""
        line = self.line
        self._stay()
        if line is not None:
            self._conversation.hang_up(line, Reason.GOODBYE)

    def _too_late(self, now: Instant) -> None:
        if self._step is Step.MOVING and self.line is not None and self.line.is_ready:
            self._complete(now)
            return
        if self._step is Step.MOVING:
            self._go_back(now)
        self._give_up(now)

    def _give_up(self, now: Instant) -> None:
        """None of them will do: leave as if nobody had been named, or stay if we may."""
        present, ends_at, may_stay = self._conversation.line, self._ends_at, self._may_stay
        self.stop()
        if present is not None and present.is_ready:
            self._conversation.asking.ask_for_all(present, now)  # what waited for the move
            if not may_stay:
                self._conversation.leave_soon(present, max(now, ends_at), now)

    def _go_back(self, now: Instant) -> None:
        """The next broker was lost when we had begun to move: be at the present one in full again."""
        self._step = Step.LOOKING
        present = self._conversation.line
        if present is not None and present.is_ready:
            present.leaving = False
            self._conversation.asking.ask_for_all(present, now)

    def _forget_candidate(self, reason: Reason) -> None:
        self._rooms.timers.cancel("roam dial")
        self._rooms.outbox.note(DialFailed(str(self._target), reason, 0))
        self.ticket = None
        self._awaited = 0
        self._kept, self._kept_bytes = [], 0

    def _stay(self) -> list[bytes]:
        """The move is over, one way or another; returns what was kept back."""
        for key in ("roam", "roam dial"):
            self._rooms.timers.cancel(key)
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        self._step, self.line, self.ticket, self._awaited = Step.STAYING, None, None, 0
        self._candidates.clear()
        self._may_stay = self._advised = False
        return kept

    def _last_moment(self, now: Instant) -> Instant:
        """When to leave the present broker at the latest: before it ends the link itself."""
        return now + 3 * max(0, self._ends_at - now) // 4


def successors(present: Target, addresses: list[str], has_token: bool) -> list[Target]:
    """Those of these addresses that are no weaker than the present one, in the same order.

    A broker must not talk us out of TLS or off this machine, nor send us back to our own machine from elsewhere. The
    name that the program expects in certificates stays the same.
    """
    found: dict[Target, None] = {}
    for address in addresses[:OTHERS_MAX]:
        try:
            target = parse_target(address, present.server_name)
        except UsageError:
            continue
        here = is_loopback(target.host)
        if here and not is_loopback(present.host):
            continue
        if not target.secure and (present.secure or ((is_loopback(present.host) or has_token) and not here)):
            continue
        if target != present and not _is_anywhere(target.host):
            found[target] = None
    return list(found)


def _is_anywhere(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
