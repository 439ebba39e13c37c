"""`heliograph resource`: register resources, update and withdraw them, and keep this machine registered.

In:    ranges, values, the file with a resource's secret.
Out:   the resource's id; what is hosted at a broker.
State: the file with the secret, which only its owner can read.
Not here: the client's side of resources (live/resources.py), finding them (cli/discover_resource.py).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from heliograph.cli import connection as c
from heliograph.cli.remarks import Remarks
from heliograph.cli.shape import examples, group, say
from heliograph.cli.tables import show
from heliograph.errors import UsageError

app = group("Register resources, update and withdraw them.")
SERVICE = "resources"
Where = Annotated[str, typer.Option(help='What its values may be, such as "memory <= 64 and load >= 0".')]
Given = Annotated[
    list[str] | None, typer.Option("--value", metavar="NAME=VALUE", help="One of its values; can be repeated.")
]
SecretFile = Annotated[Path, typer.Option(help="The file with the resource's secret; made if it is not there.")]
Lease = Annotated[float, typer.Option(help="Seconds for which it stays without being renewed.", min=1)]


def values_of(given: list[str] | None) -> dict[str, Any]:
    """NAME=VALUE as a value: JSON if it is valid JSON, otherwise a text."""
    import json

    found: dict[str, Any] = {}
    for each in given or []:
        name, equals, text = each.partition("=")
        if not equals or not name:
            raise UsageError(f"{each!r} is no NAME=VALUE, such as memory=8")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        found[name] = value if isinstance(value, bool | int | float | str) else text
    return found


def secret_in(file: Path, make: bool) -> bytes:
    """The secret in a file; if there is none, a new one that only this user can read."""
    if file.exists():
        try:
            return bytes.fromhex(file.read_text("ascii").strip())
        except ValueError:
            raise UsageError(f"{file} does not hold the secret of a resource") from None
    if not make:
        raise UsageError(f"{file} is not there: the file that `heliograph resource register` made")
    import secrets

    secret = secrets.token_bytes(16)
    file.touch(0o600)
    file.write_text(secret.hex() + "\n", "ascii")
    return secret


def _register(
    there: c.Connection,
    secret_file: SecretFile,
    where: Where = "",
    value: Given = None,
    attribute: Annotated[
        list[str] | None, typer.Option("--attribute", metavar="NAME=VALUE", help="What never changes; can be repeated.")
    ] = None,
    static: Annotated[bool, typer.Option("--static", help="It has no values that change.")] = False,
    name: Annotated[str, typer.Option(help="What people call it.")] = "",
    lease: Lease = 3_600.0,
    stay: Annotated[bool, typer.Option("--stay", help="Stay, renew it, and withdraw it in the end.")] = False,
) -> None:
    import asyncio

    values, fixed, secret = values_of(value), values_of(attribute), secret_in(secret_file, make=True)

    async def work() -> None:
        async with c.connected(there, name="heliograph resource") as client:
            registered = await client.register_resource(
                where,
                attributes=fixed,
                values=values or None,
                model="static" if static else "dynamic",
                name=name,
                lease=lease,
                secret=secret,
            )
            print(f"{registered.id} at {registered.broker}")
            if stay:
                say("it stays until Ctrl-C")
                try:
                    await asyncio.Event().wait()
                finally:
                    await registered.withdraw()
            registered._stop()

    c.run_until_ended(work()) if stay else c.run(work())


def _ask(there: c.Connection, body: dict[str, Any]) -> Any:
    answers: list[Any] = []

    async def work() -> None:
        async with c.connected(there, name="heliograph resource") as client:
            answers.append(await client.ask(SERVICE, body))

    c.run(work())
    return answers[0]


def _update(there: c.Connection, secret_file: SecretFile, value: Given = None, lease: Lease = 3_600.0) -> None:
    secret = secret_in(secret_file, make=False).hex()
    body = {"do": "update", "secret": secret, "values": values_of(value), "version": time.time_ns(), "lease_s": lease}
    _ask(there, body)


def _withdraw(there: c.Connection, secret_file: SecretFile) -> None:
    _ask(there, {"do": "withdraw", "secret": secret_in(secret_file, make=False).hex()})


def _list(
    there: c.Connection, as_json: Annotated[bool, typer.Option("--json", help="As one JSON list.")] = False
) -> None:
    rows: list[Any] = []
    while True:
        answer = _ask(there, {"do": "list", "start": len(rows)})
        rows += answer["resources"]
        if len(rows) >= answer["total"] or not answer["resources"]:
            break
    show(rows, as_json, ("id", "name", "model", "where", "values"))


def _agent(
    there: c.Connection,
    interval: Annotated[float, typer.Option(help="Seconds between updates.", min=0.2)] = 5.0,
    name: Annotated[str, typer.Option(help="What people call it; the host name if it is left out.")] = "",
    once: Annotated[bool, typer.Option("--once", help="End after the first update.")] = False,
) -> None:
    import asyncio

    async def work() -> None:
        from heliograph.live.machine_facts import machine_attributes, machine_ranges, machine_values

        async with c.connected(there, name="heliograph resource agent", on_note=Remarks().heard) as client:
            attributes = machine_attributes()
            async with await client.register_resource(
                machine_ranges(),
                attributes=attributes,
                values=machine_values(),
                name=name or str(attributes["host"]),
                lease=max(30.0, 4 * interval),
            ) as registered:
                print(f"{registered.id} at {registered.broker}", flush=True)
                while not once:
                    await asyncio.sleep(interval)
                    await registered.update(machine_values())

    c.run_until_ended(work())


app.command(
    name="register",
    help="Register a resource.",
    epilog=examples(
        "heliograph resource register --secret-file m1.secret --name m1 --where 'memory <= 64 and load >= 0' "
        "--attribute system=linux --value memory=8 --value load=0.5"
    ),
)(c.with_connection(_register))
app.command(
    name="update",
    help="Give a resource new values.",
    epilog=examples("heliograph resource update --secret-file m1.secret --value memory=4 --value load=1.5"),
)(c.with_connection(_update))
app.command(name="withdraw", help="Withdraw a resource, so that it is no longer found.")(c.with_connection(_withdraw))
app.command(name="list", help="The resources that a broker hosts.")(c.with_connection(_list))
app.command(name="agent", help="Keep this machine's CPU, memory, disk and load registered.")(c.with_connection(_agent))
