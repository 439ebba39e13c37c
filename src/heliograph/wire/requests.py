"""Requests: how a client's request to a service becomes a typed struct, once, for every service.

In:    the payload of a SERVICE frame, and its headers, in which the broker names the asker.
Out:   one of the structs that the service declares, and an Asker; ProtocolError for anything else.
State: decoders.
Not here: the structs (each service's folder), refusing (services/broker_session.py), carrying out (the services).

Behind this function nothing is decoded again: what is passed on is the struct, encoded anew. Fields that a struct does
not have are skipped, so that a newer client can send them; of a field that comes twice, the last one counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import UnionType
from typing import Any, Generic, TypeVar, get_args

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.wire.bodies import Body
from heliograph.wire.hearing import Hearing

TEXT_LENGTH_MAX = 200  # of what was wrong with a request
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)  # ValueError: also bad UTF-8 and integers too long

R = TypeVar("R")


class Asker(Body, frozen=True):
    """The client that asks, as its broker knows it: the headers of a request on a pipe."""

    entity: str
    roles: list[str]
    proof: str  # "certificate", "token", …: how the entity was proven
    inbox: str  # empty if the client has none
    session: str  # its origin, 16 hexadecimal digits
    source: str = ""  # the address that its places count for
    hears: Hearing | None = None  # to the service `stores` only


class RequestTypes(Generic[R]):
    """The requests that one service takes: a struct, or a union of structs that differ in the field ``do``.

    A request that is none of them is refused with ``malformed``. ``read`` replaces JSON by another form.
    """

    def __init__(
        self,
        kinds: type[R] | UnionType,
        *,
        malformed: Reason = Reason.BODY_MALFORMED,
        read: Callable[[bytes], R] | None = None,
    ) -> None:
        self._form = kinds
        self.malformed = malformed
        self._given = read

    @property
    def kinds(self) -> tuple[type[Any], ...]:
        """The structs, one for each kind of request."""
        return get_args(self._form) or (self._form,)

    @cached_property
    def _read(self) -> Callable[[bytes], R]:
        """Made for the first request, so that a broker starts faster."""
        if self._given is not None:
            return self._given
        decode: Callable[[bytes], R] = msgspec.json.Decoder(self._form).decode
        return decode

    def decode(self, data: bytes) -> R:
        """A request. ProtocolError if it is none of this service's."""
        try:
            return self._read(data)
        except UNREADABLE as error:
            text = str(error)[:TEXT_LENGTH_MAX]
            if "`$.do`" in text or "field `do`" in text:
                text += f"; it must be one of {', '.join(str(kind.__struct_config__.tag) for kind in self.kinds)}"
            raise ProtocolError(self.malformed, text) from None


_askers = RequestTypes(Asker)


def decode_asker(headers: bytes) -> Asker:
    """The asker of a request."""
    return _askers.decode(headers)
