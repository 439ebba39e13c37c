"""Calls: the requests of owners and requesters to the resource service of their broker, as typed structs.

In:    JSON from clients.
Out:   structs, by REQUESTS; ProtocolError if the JSON is invalid.
State: none.
Not here: carrying them out (desk.py), messages between services (messages.py).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from heliograph.discovery.resources.messages import NAME_LENGTH_MAX, TEXT_LENGTH_MAX, Values
from heliograph.errors import Reason
from heliograph.wire.bodies import Body
from heliograph.wire.requests import RequestTypes

MODELS = ("static", "dynamic")
Secret = Annotated[str, Meta(min_length=32, max_length=128, pattern=r"\A[0-9a-f]+\Z")]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
Name = Annotated[str, Meta(max_length=NAME_LENGTH_MAX)]
Count = Annotated[int, Meta(ge=0, le=(1 << 62) - 1)]
WatchNumber = Annotated[int, Meta(ge=1, le=(1 << 62) - 1)]  # chosen by the client, for each link anew
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]
Model = Literal["static", "dynamic"]


class RegisterCall(Body, frozen=True, tag="register", tag_field="do"):
    """Register a resource, or attach it here."""

    secret: Secret
    where: Text
    epoch: Count
    model: Model = "dynamic"
    name: Name = ""
    language: Name = "predicates"
    lease_s: Seconds = 60
    values: Values | None = None
    version: Count = 0
    attached: bool = False  # it may be registered at another broker as well


class UpdateCall(Body, frozen=True, tag="update", tag_field="do"):
    """Set its latest values."""

    secret: Secret
    values: Values
    version: Count
    lease_s: Seconds = 60


class RenewCall(Body, frozen=True, tag="renew", tag_field="do"):
    """Renew its lease."""

    secret: Secret
    lease_s: Seconds = 60


class WithdrawCall(Body, frozen=True, tag="withdraw", tag_field="do"):
    """Withdraw it."""

    secret: Secret


class ListCall(Body, frozen=True, tag="list", tag_field="do"):
    """List what is hosted here."""

    start: Count = 0


class DiscoverCall(Body, frozen=True, tag="discover", tag_field="do"):
    """Make a one-time request."""

    where: Text = "true"
    model: Model = "dynamic"
    language: Name = "predicates"
    deliver: Name = ""
    best: Annotated[int, Meta(ge=0, le=100_000)] = 0
    order: Name = ""
    max_age_s: Annotated[float, Meta(ge=0, le=86_400)] = 0  # of answers to earlier requests; 0: none is shared
    deadline_ms: Annotated[int, Meta(ge=10, le=600_000)] | None = None


class PartCall(Body, frozen=True, tag="part", tag_field="do"):
    """Fetch the next part of a long answer."""

    answer: Count
    start: Count


class WatchCall(Body, frozen=True, tag="watch", tag_field="do"):
    """Begin a continuous request."""

    watch: WatchNumber
    where: Text = "true"
    model: Model = "dynamic"
    language: Name = "predicates"


class KeepCall(Body, frozen=True, tag="keep", tag_field="do"):
    """Ask whether a watch is known here, and for the number of its last news."""

    watch: WatchNumber
    again: bool = False  # something was missed: send everything again


class UnwatchCall(Body, frozen=True, tag="unwatch", tag_field="do"):
    """End a watch."""

    watch: WatchNumber


class TablesCall(Body, frozen=True, tag="tables", tag_field="do"):
    """Ask for the service's counters and its tables of requests."""


Call = (
    RegisterCall
    | UpdateCall
    | RenewCall
    | WithdrawCall
    | ListCall
    | DiscoverCall
    | PartCall
    | WatchCall
    | KeepCall
    | UnwatchCall
    | TablesCall
)


REQUESTS: RequestTypes[Call] = RequestTypes(Call, malformed=Reason.RESOURCE_CALL_MALFORMED)
