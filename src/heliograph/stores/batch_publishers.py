"""Publishers of batches: the last visible batch of each, and which clients may commit under its name.

In:    commits; the vault's content.
Out:   changes to the vault; ProtocolError if a client may not use a name, or if there is no place for it.
State: all publishers of batches (bounded).
Not here: commits (batches.py), staged parts (staged.py), proofs (wire/name_proofs.py).

A name belongs to an entity. Clients without credentials are all the entity ``anonymous``; among them a name belongs to
the first that commits under it, which shows a proof with each commit, as for durable names (names.py). So are places
shared: a holder may have as many names as are still free for the others.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.model.identity import ANONYMOUS
from heliograph.stores.names import Holder, NameOwner
from heliograph.vault import Delete, Put
from heliograph.wire.name_proofs import hash_of, is_shown

COMMITS = "c/"
PUBLISHERS_MAX = 10_000
BatchKey = tuple[str, str]  # entity, publisher


class BatchState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last visible batch of a publisher, as the vault keeps it."""

    batch: int
    position: int
    query: str | None = None  # what committed it; "": it did not say; None: it was committed at an older store
    used_ns: int = 0  # when it was committed; 0: at an older store
    owner: NameOwner | None = None  # of a publisher without credentials; None: the next one that shows a proof


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BatchState).decode


class BatchPublishers:
    """All publishers of batches of a store."""

    def __init__(self) -> None:
        self._states: dict[BatchKey, BatchState] = {}
        self._holders: dict[BatchKey, Holder] = {}  # of the same, and of those whose first commit is under way
        self._per_holder: dict[Holder, int] = {}

    def clear(self) -> None:
        """The vault is read again."""
        self._states.clear()
        self._holders.clear()
        self._per_holder.clear()

    def load(self, key: str, value: bytes | None) -> None:
        """A key and value of the vault."""
        entity, _, publisher = key.removeprefix(COMMITS).partition("/")
        try:
            state = _decode(value or b"")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        self._set((entity, publisher), state)

    def get(self, key: BatchKey) -> BatchState | None:
        """One of them."""
        return self._states.get(key)

    def items(self) -> Iterator[tuple[BatchKey, BatchState]]:
        """All of them."""
        return iter(self._states.items())

    def owner_for(self, key: BatchKey, proof: str, source: str) -> NameOwner | None:
        """The owner of a name once this client has committed under it. ProtocolError if it belongs to another."""
        if key[0] != ANONYMOUS.entity:
            return None
        if not proof:
            text = "without credentials, a publisher of batches needs the proof of a secret"
            raise ProtocolError(Reason.NAME_UNPROVEN, text)
        state = self._states.get(key)
        if state is None or state.owner is None:
            return NameOwner(hash_of(proof), source=source)
        check_owner(key[1], proof, state.owner.proof)
        return state.owner

    def reserve(self, key: BatchKey, source: str) -> None:
        """Take a place for a name that is not known yet. ProtocolError if there is none for this holder."""
        if key in self._holders:
            return
        holder = (key[0], source if key[0] == ANONYMOUS.entity else "")
        free = PUBLISHERS_MAX - len(self._holders)
        has = self._per_holder.get(holder, 0)
        if has >= free:
            who = " at ".join(filter(None, holder))
            text = f"{who} has {has} publishers of batches here, and {free} places are left: they are for others"
            raise ProtocolError(Reason.BATCHES_OVER_LIMIT, text)
        self._take_place(key, holder)

    def release(self, key: BatchKey) -> None:
        """Its first commit failed: give its place back."""
        if key not in self._states:
            self._leave_place(key)

    def put(self, key: BatchKey, state: BatchState) -> None:
        """A batch has become visible."""
        self._set(key, state)

    def drop(self, key: BatchKey) -> Delete:
        """Forget one."""
        del self._states[key]
        self._leave_place(key)
        return Delete(f"{COMMITS}{key[0]}/{key[1]}")

    def _set(self, key: BatchKey, state: BatchState) -> None:
        self._take_place(key, (key[0], "" if state.owner is None else state.owner.source))
        self._states[key] = state

    def _take_place(self, key: BatchKey, holder: Holder) -> None:
        self._leave_place(key)
        self._holders[key] = holder
        self._per_holder[holder] = self._per_holder.get(holder, 0) + 1

    def _leave_place(self, key: BatchKey) -> None:
        holder = self._holders.pop(key, None)
        if holder is not None:
            self._per_holder[holder] -= 1
            if not self._per_holder[holder]:
                del self._per_holder[holder]


def kept(key: BatchKey, state: BatchState) -> Put:
    """The change that keeps it in the vault."""
    return Put(f"{COMMITS}{key[0]}/{key[1]}", _encode(state))


def check_owner(publisher: str, proof: str, owner: str) -> None:
    """ProtocolError if this is not the proof whose hash was kept."""
    if not is_shown(proof, owner):
        text = f"the publisher {publisher} belongs to another client without credentials: show its secret (secret=; "
        raise ProtocolError(Reason.NAME_FOREIGN, f"{text}Spark: secretFile), or choose another name")


def check_query(publisher: str, batch: int, query: str, last: int, committed_by: str | None) -> None:
    """ProtocolError if a batch that is visible was committed by another query, so this one is not its repeat."""
    if committed_by is not None and query != committed_by:
        before = f"the query {committed_by}" if committed_by else "a program that named no query"
        text = (
            f"batch {batch} of the publisher {publisher} is not a repeat: {before} has committed batches up to {last}; "
            "a new query (or checkpoint) needs a publisher of its own, or continues from the other's checkpoint"
        )
        raise ProtocolError(Reason.BATCH_FOREIGN, text)
