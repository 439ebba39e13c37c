from collections.abc import Callable
from typing import Any

from heliograph.broker.links import Links
from heliograph.broker.routes import Route, RouteTable
from heliograph.broker.routing.parcels import Parcels
from heliograph.broker.routing.seen import Origins
from heliograph.broker.routing.view import View
from heliograph.machine import Outbox
from heliograph.wire.scan import Numbers

NAMES: list[str]
LIMITS: dict[str, int]

class Routes:
    resolve: Callable[[bytes], Route | None]
    def __len__(self) -> int: ...
    def __getitem__(self, topic: bytes, /) -> Route: ...
    def __setitem__(self, topic: bytes, route: Route, /) -> None: ...
    def __delitem__(self, topic: bytes, /) -> None: ...
    def __contains__(self, topic: bytes, /) -> bool: ...
    def get(self, topic: bytes, /) -> Route | None: ...
    def some(self, count: int, /) -> list[bytes]: ...
    def clear(self) -> None: ...

class Shortcut:
    def __init__(
        self,
        links: Links,
        outbox: Outbox,
        local: RouteTable,
        inner: RouteTable,
        origins: Origins,
        view: View,
        parcels: Parcels,
        payload_bytes_max: int,
    ) -> None: ...
    def limit(self, payload_bytes_max: int, /) -> None: ...
    def take(self, link: int, data: bytes, now: int, /) -> tuple[int, bytes] | None: ...

def frames_of(chunk: bytes, start: int, /) -> list[int]: ...
def scan(
    data: bytes,
    pos: int,
    routes: Any,
    seen: Numbers,
    payload_bytes_max: int,
    spans: list[tuple[Any, int, int]],
    /,
) -> tuple[int, int]: ...
