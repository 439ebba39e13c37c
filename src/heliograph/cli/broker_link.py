"""`heliograph broker link`: links between a running broker and others.

In:    an administrator's request and the other broker's address.
Out:   orders to the broker; its neighbours as a table or as JSON.
State: none.
Not here: opening and watching links (broker/routing/peering.py), links that are kept from the start (config/).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.connection import Connection, ask, ask_at, with_connection
from heliograph.cli.shape import examples, group, say
from heliograph.cli.tables import show

if TYPE_CHECKING:
    from heliograph.client.config import Target

app = group("Link a running broker to others.")

# The columns for people; --json has everything.
COLUMNS = ("broker", "cluster", "cost", "round_trip_us", "suspected", "dialled", "unconfirmed_bytes")
LIST_COLUMNS = ("address", "state", "broker", "cluster", "cost", "round_trip_us", "suspected", "dialled", "reason")

Address = Annotated[
    str, typer.Argument(metavar="HOST:PORT", help="The other broker; heliographs://HOST:PORT dials it with TLS.")
]


@app.command(epilog=examples("heliograph broker link add b.example.org:4717 --secure"))
@with_connection
def add(
    there: Connection,
    address: Address,
    secure: Annotated[bool, typer.Option("--secure", help="Dial it with TLS.")] = False,
) -> None:
    """Have a broker keep a link to another one."""
    target = target_of(address, "HOST:PORT")
    place, _ = ask_at(there, _order("link", target, target.secure or secure))
    say(f"{place}: linking to {target.host}:{target.port}; `heliograph broker link list` shows when it is there")


@app.command(epilog=examples("heliograph broker link remove b.example.org:4717"))
@with_connection
def remove(there: Connection, address: Address) -> None:
    """Have a broker end a link that it keeps."""
    target = target_of(address, "HOST:PORT")
    place, _ = ask_at(there, _order("unlink", target, target.secure))
    say(f"{place}: the link to {target.host}:{target.port} is removed")


@app.command(name="list")
@with_connection
def list_neighbours(
    there: Connection, as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False
) -> None:
    """List the links that a broker has or dials."""
    report = ask(there, {"do": "report", "question": "map"})
    linked = [{"state": "linked", "reason": "", **row} for row in report["neighbours"]]
    show([*linked, *(aim for aim in report["aims"] if aim["state"] != "linked")], as_json, LIST_COLUMNS)


def target_of(address: str, what: str) -> Target:
    """An address as people write it, in an argument or option of this name."""
    from heliograph.client.config import parse_target
    from heliograph.errors import UsageError

    told = f"{what} {address!r}: write HOST:PORT, such as 127.0.0.1:4717 or [::1]:4717"
    try:
        target = parse_target(address)
    except UsageError:
        raise UsageError(told) from None
    if not address.rstrip("/").rpartition(":")[2].isdigit():
        raise UsageError(told)
    return target


def _order(do: str, target: Target, secure: bool) -> dict[str, Any]:
    return {"do": do, "host": target.host, "port": target.port, "secure": secure}
