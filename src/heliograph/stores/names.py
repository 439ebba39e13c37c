"""Names: durable subscriptions, and how far each has acknowledged.

In:    openings, acknowledgements, drops; the vault's content.
Out:   changes to the vault; the position below which the log is not needed.
State: all durable subscriptions (bounded).
Not here: reading for them (channels.py), forgetting parts of the log (retention.py).

A name belongs to an entity: no other entity can use it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.stores.config import StoreConfig
from heliograph.vault import Delete, Put
from heliograph.wire.stores import SELECTED_MAX

PREFIX = "s/"
Span = tuple[int, int]


class NameState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A durable subscription, as the vault keeps it."""

    filter: str
    before: int  # everything before this position is acknowledged …
    also: list[Span] = []  # … and these spans [first, end) after it
    language: str = "topic"
    where: str = ""
    used_ns: int = 0  # when it was last used


NameKey = tuple[str, str]  # entity, name

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(NameState).decode


class Names:
    """All durable subscriptions of a store."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._names: dict[NameKey, NameState] = {}
        self._per_entity: dict[str, int] = {}
        self.damaged = 0

    def clear(self) -> None:
        """The vault is read again."""
        self._names.clear()
        self._per_entity.clear()

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

    def items(self) -> list[tuple[NameKey, NameState]]:
        """All of them, by entity and name."""
        return sorted(self._names.items())

    def make_room(self, key: NameKey) -> None:
        """ProtocolError if no more are allowed."""
        if key in self._names:
            return
        if len(self._names) >= self._config.names_max:
            raise ProtocolError(Reason.NAMES_OVER_LIMIT, f"this store keeps {self._config.names_max} names")
        if self._per_entity.get(key[0], 0) >= self._config.names_per_entity_max:
            raise ProtocolError(Reason.NAMES_OVER_LIMIT, f"{key[0]} has {self._config.names_per_entity_max} names")

    def put(self, key: NameKey, state: NameState) -> Put:
        """Create or change one."""
        self._set(key, state)
        return Put(f"{PREFIX}{key[0]}/{key[1]}", _encode(state))

    def drop(self, key: NameKey) -> Delete | None:
        """Forget one."""
        if self._names.pop(key, None) is None:
            return None
        left = self._per_entity[key[0]] - 1
        if left:
            self._per_entity[key[0]] = left
        else:
            del self._per_entity[key[0]]
        return Delete(f"{PREFIX}{key[0]}/{key[1]}")

    def _set(self, key: NameKey, state: NameState) -> None:
        if key not in self._names:
            self._per_entity[key[0]] = self._per_entity.get(key[0], 0) + 1
        self._names[key] = state

    @property
    def held(self) -> int | None:
        """The lowest position that a name has not acknowledged; None if there are no names."""
        return min((state.before for state in self._names.values()), default=None)

    def idle(self, wall_ns: int) -> list[NameKey]:
        """Names that were not used for too long."""
        limit = wall_ns - self._config.name_idle_s * 1_000_000_000
        return [key for key, state in self._names.items() if state.used_ns < limit]

    def __len__(self) -> int:
        return len(self._names)


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
        raise ProtocolError(Reason.BODY_MALFORMED, f"more than {SELECTED_MAX} spans are acknowledged out of order")
    return msgspec.structs.replace(state, before=before, also=joined, used_ns=used_ns)
