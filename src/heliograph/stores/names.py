"""Names: durable subscriptions, and how far each has acknowledged.

In:    openings, acknowledgements, drops; the vault's content.
Out:   changes to the vault; the position below which the log is not needed; whether a client may use a name; pages of
       names.
State: all durable subscriptions (bounded), in order, and in order for each client that may list them.
Not here: reading for them (channels.py), forgetting parts of the log (retention.py), proofs (wire/name_proofs.py).

A name belongs to an entity: no other entity can use it. Clients without credentials are all the entity ``anonymous``;
among them a name belongs to the one that made it, which shows a proof with each request. A name without an owner, as in
older vaults, or after an administrator has released it, goes to the first client that shows a proof.

Places are shared among *holders*: an entity, or for clients without credentials a source address. A holder may have as
many names as are still free for the others, so the last holder to come finds a place too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.model.identity import ANONYMOUS
from heliograph.stores.config import StoreConfig
from heliograph.vault import Delete, Put
from heliograph.wire.name_proofs import hash_of, is_shown
from heliograph.wire.stores import SELECTED_MAX

PREFIX = "s/"
Span = tuple[int, int]


class NameOwner(msgspec.Struct, frozen=True, omit_defaults=True):
    """The client without credentials that has a name."""

    proof: str  # the hash of its proof of the name
    lists: str = ""  # the hash of what it shows to list its names
    source: str = ""  # the address from which it took the name


class NameState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A durable subscription, as the vault keeps it."""

    filter: str
    before: int  # everything before this position is acknowledged …
    also: list[Span] = []  # … and these spans [first, end) after it
    language: str = "topic"
    where: str = ""
    used_ns: int = 0  # when it was last used
    owner: NameOwner | None = None  # None: the entity, if that is one; otherwise the next client that shows a proof


NameKey = tuple[str, str]  # entity, name
Holder = tuple[str, str]  # entity, and for clients without credentials the source
Lister = tuple[str, str]  # entity, and for clients without credentials the hash of what they show to list names

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(NameState).decode


class Names:
    """All durable subscriptions of a store."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._names: dict[NameKey, NameState] = {}
        self._per_holder: dict[Holder, int] = {}
        self._ordered: list[NameKey] = []
        self._of_lister: dict[Lister, list[NameKey]] = {}
        self._held: int | None = None
        self._is_held_known = True
        self.looked_at = 0  # names, to list them
        self.damaged = 0

    def clear(self) -> None:
        """The vault is read again."""
        self._names.clear()
        self._per_holder.clear()
        self._ordered.clear()
        self._of_lister.clear()
        self._is_held_known = False

    def load(self, key: str, value: bytes | None) -> None:
        """A key and value of the vault."""
        entity, _, name = key.removeprefix(PREFIX).partition("/")
        try:
            self._set((entity, name), _decode(value or b""))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.damaged += 1

    def reload(self, config: StoreConfig) -> None:
        """Apply new limits."""
        self._config = config

    def get(self, key: NameKey) -> NameState | None:
        """One of them."""
        return self._names.get(key)

    def page(self, after: NameKey, count: int, lister: Lister | None) -> tuple[list[tuple[NameKey, NameState]], bool]:
        """So many of those that this client may list, or of all, in order; and whether there are more."""
        keys = self._ordered if lister is None else self._of_lister.get(lister, [])
        start = bisect_right(keys, after)
        chosen = keys[start : start + count]
        self.looked_at += len(chosen)
        return [(key, self._names[key]) for key in chosen], start + count < len(keys)

    def of_asker(self, key: NameKey, proof: str, *, claims: bool = False) -> NameState | None:
        """The asker's name; None if there is none. ProtocolError if it belongs to another client.

        ``claims``: a name without an owner will be the asker's.
        """
        state = self._names.get(key)
        if key[0] != ANONYMOUS.entity:
            return state
        if not proof:
            raise ProtocolError(Reason.NAME_UNPROVEN, "without credentials, a durable name needs the proof of a secret")
        if state is None or (claims and state.owner is None):
            return state
        if state.owner is None or not is_shown(proof, state.owner.proof):
            raise ProtocolError(
                Reason.NAME_FOREIGN,
                f"the name {key[1]} belongs to another client without credentials: show its secret (secret=, "
                "--secret-file), choose another name, or ask an administrator to release it "
                f"(heliograph subscription release {key[1]})",
            )
        return state

    def owner_for(self, key: NameKey, proof: str, lists: str, source: str) -> NameOwner | None:
        """The owner of a name that this asker may use; a name keeps the place where it was taken."""
        if key[0] != ANONYMOUS.entity:
            return None
        state = self._names.get(key)
        place = source if state is None or state.owner is None else state.owner.source
        return NameOwner(hash_of(proof), hash_of(lists), place)

    def make_room(self, key: NameKey, owner: NameOwner | None) -> None:
        """ProtocolError if no more are allowed."""
        if key in self._names:
            return
        holder = _holder(key, owner)
        has, free = self._per_holder.get(holder, 0), self._config.names_max - len(self._names)
        if has < min(self._config.names_per_entity_max, free):
            return
        who = " at ".join(filter(None, holder))
        text = (
            f"{who} has {has} names here, and {free} places are left of {self._config.names_max}: they are for others"
        )
        raise ProtocolError(Reason.NAMES_OVER_LIMIT, text)

    def put(self, key: NameKey, state: NameState) -> Put:
        """Create or change one."""
        self._set(key, state)
        return Put(f"{PREFIX}{key[0]}/{key[1]}", _encode(state))

    def drop(self, key: NameKey) -> Delete | None:
        """Forget one."""
        state = self._names.pop(key, None)
        if state is None:
            return None
        self._count(_holder(key, state.owner), -1)
        _take_out(self._ordered, key)
        self._unlist(key, state)
        self._is_held_known = self._is_held_known and state.before != self._held
        return Delete(f"{PREFIX}{key[0]}/{key[1]}")

    def _set(self, key: NameKey, state: NameState) -> None:
        before = self._names.get(key)
        if before is not None:
            self._count(_holder(key, before.owner), -1)
            if before.owner != state.owner:
                self._unlist(key, before)
            self._is_held_known = self._is_held_known and before.before != self._held
        else:
            insort(self._ordered, key)
        self._count(_holder(key, state.owner), 1)
        self._names[key] = state
        lister = _lister(key, state.owner)
        if lister is not None and (before is None or before.owner != state.owner):
            insort(self._of_lister.setdefault(lister, []), key)
        if self._is_held_known and (self._held is None or state.before < self._held):
            self._held = state.before

    def _unlist(self, key: NameKey, state: NameState) -> None:
        lister = _lister(key, state.owner)
        if lister is not None:
            _take_out(self._of_lister[lister], key)
            if not self._of_lister[lister]:
                del self._of_lister[lister]

    def _count(self, holder: Holder, more: int) -> None:
        count = self._per_holder.get(holder, 0) + more
        if count:
            self._per_holder[holder] = count
        else:
            del self._per_holder[holder]

    @property
    def held(self) -> int | None:
        """The lowest position that a name has not acknowledged; None if there are no names."""
        if not self._is_held_known:
            self._held = min((state.before for state in self._names.values()), default=None)
            self._is_held_known = True
        return self._held

    def idle(self, wall_ns: int) -> list[NameKey]:
        """Names that were not used for too long."""
        limit = wall_ns - self._config.name_idle_s * 1_000_000_000
        return [key for key, state in self._names.items() if state.used_ns < limit]

    def __len__(self) -> int:
        return len(self._names)


def _holder(key: NameKey, owner: NameOwner | None) -> Holder:
    return key[0], "" if owner is None else owner.source


def lister_of(entity: str, lists: str) -> Lister:
    """Who a client is, to list names."""
    return entity, hash_of(lists) if entity == ANONYMOUS.entity else ""


def _lister(key: NameKey, owner: NameOwner | None) -> Lister | None:
    """Who lists a name; None if only administrators do."""
    if key[0] != ANONYMOUS.entity:
        return key[0], ""
    return None if owner is None or not owner.lists else (key[0], owner.lists)


def _take_out(keys: list[NameKey], key: NameKey) -> None:
    del keys[bisect_left(keys, key)]


def acknowledged(state: NameState, before: int, also: Sequence[Span], used_ns: int) -> NameState:
    """The state with more acknowledged; adjacent spans are joined. ProtocolError if there are too many spans."""
    spans = sorted(span for span in (*state.also, *also) if span[0] < span[1])
    before = max(state.before, before)
    joined: list[Span] = []
    for first, end in spans:
        if first <= before:
            before = max(before, end)
        elif joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((first, end))
    if len(joined) > SELECTED_MAX:
        raise ProtocolError(Reason.SPANS_OVER_LIMIT, f"more than {SELECTED_MAX} spans are acknowledged out of order")
    return msgspec.structs.replace(state, before=before, also=joined, used_ns=used_ns)
