"""`heliograph ca`: the user's own authority, in a folder.

In:    names, roles and hosts.
Out:   authority.crt and authority.key, a pair for each entity, revoked.crl; keys are readable by their owner only.
State: the folder.
Not here: the content of a certificate (trust/certificates.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.cli.shape import examples, group, say
from heliograph.errors import UsageError
from heliograph.model.identity import Role

if TYPE_CHECKING:
    from heliograph.trust.certificates import Facts

AUTHORITY = "authority"
REVOKED = "revoked.crl"

app = group("Make an authority and certificates.")

Folder = Annotated[Path, typer.Option("--dir", help="The authority's folder.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
FOLDER = Path("heliograph-ca")


@app.command(epilog=examples("heliograph ca init", "heliograph ca init --dir /etc/heliograph/ca --name plant-7"))
def init(
    name: Annotated[str, typer.Option(help="The authority's name.")] = "heliograph-authority",
    folder: Folder = FOLDER,
    force: Force = False,
) -> None:
    """Make an authority: authority.crt and authority.key."""
    from datetime import UTC, datetime

    from heliograph.cli.files import PUBLIC, private_folder, refuse_existing, write_file
    from heliograph.trust.certificates import make_authority

    certificate, key = folder / f"{AUTHORITY}.crt", folder / f"{AUTHORITY}.key"
    if not force:
        refuse_existing(certificate, key)
    pair = make_authority(name, datetime.now(UTC))
    private_folder(folder)
    write_file(key, pair.key, force=force)
    write_file(certificate, pair.certificate, mode=PUBLIC, force=force)
    say(f"authority {name}: {certificate} (give it to everyone), {key} (guard it)")


@app.command(
    epilog=examples(
        "heliograph ca issue broker-1 --role broker --host broker-1.example.org",
        "heliograph ca issue trial --role broker --localhost",
        "heliograph ca issue sensor-7",
        "heliograph ca issue alice --role client --role admin",
    )
)
def issue(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="The entity's id: letters, digits and . _ @ -")],
    role: Annotated[list[Role] | None, typer.Option(help="What it may be; can be repeated. Default: client.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address under which a broker or directory is reached; can be repeated."),
    ] = None,
    localhost: Annotated[
        bool, typer.Option("--localhost", help="It is also reached as localhost: for trials on one machine.")
    ] = False,
    days: Annotated[int, typer.Option(help="How long it is valid.")] = 90,
    folder: Folder = FOLDER,
    out: Annotated[Path | None, typer.Option(help="Where to write the pair. Default: the authority's folder.")] = None,
    force: Force = False,
) -> None:
    """Issue a certificate: writes ENTITY.crt and ENTITY.key."""
    from datetime import UTC, datetime

    from heliograph.cli.files import PUBLIC, private_folder, read_file, refuse_existing, write_file
    from heliograph.trust.certificates import LOCAL_HOSTS, SERVERS, Pair, facts_of
    from heliograph.trust.certificates import issue as issue_pair

    roles = role or [Role.CLIENT]
    if (host or localhost) and SERVERS.isdisjoint(roles):
        option = "--host" if host else "--localhost"
        raise UsageError(f"{option} is for brokers and directories: add --role broker")
    if entity.casefold() == AUTHORITY:
        raise UsageError(f"{entity!r} is the authority's own name; choose another")
    target = out or folder
    certificate, key = target / f"{entity}.crt", target / f"{entity}.key"
    authority = Pair(
        read_file(folder / f"{AUTHORITY}.crt", "the authority's certificate (`heliograph ca init` makes it)"),
        read_file(folder / f"{AUTHORITY}.key", "the authority's key"),
    )
    hosts = [*(LOCAL_HOSTS if localhost else ()), *(host or [])]
    pair = issue_pair(authority, entity, roles, hosts, datetime.now(UTC), days)
    if not force:
        refuse_existing(certificate, key)
    private_folder(target)
    write_file(key, pair.key, force=force)
    write_file(certificate, pair.certificate, mode=PUBLIC, force=force)
    ends = facts_of(pair.certificate).ends
    if Role.BROKER in roles and not hosts:
        say("heliograph: without --host (or --localhost) clients can only reach it by naming its entity (server_name)")
    say(f"{entity} ({', '.join(roles)}) until {ends:%Y-%m-%d}: {certificate}, {key}")


@app.command(epilog=examples("heliograph ca revoke sensor-7", "heliograph ca revoke /backup/old-broker.crt"))
def revoke(
    who: Annotated[
        list[str], typer.Argument(metavar="ENTITY|FILE", help="An entity of the folder, or a PEM certificate.")
    ],
    folder: Folder = FOLDER,
) -> None:
    """Revoke certificates: adds them to revoked.crl."""
    from datetime import UTC, datetime

    from heliograph.cli.files import PUBLIC, read_file, write_file
    from heliograph.trust.certificates import Pair
    from heliograph.trust.certificates import revoke as revoke_certificates

    authority = Pair(
        read_file(folder / f"{AUTHORITY}.crt", "the authority's certificate (`heliograph ca init` makes it)"),
        read_file(folder / f"{AUTHORITY}.key", "the authority's key"),
    )
    paths = [Path(one) if one.endswith(".crt") else folder / f"{one}.crt" for one in who]
    certificates = [read_file(path, "the certificate") for path in paths]
    target = folder / REVOKED
    before = target.read_bytes() if target.exists() else b""
    made = revoke_certificates(authority, certificates, before, datetime.now(UTC))
    write_file(target, made, mode=PUBLIC, force=True)
    say(f"revoked {', '.join(who)}: {target}; a broker that names it as tls.revoked spreads it when it reloads")


@app.command(epilog=examples("heliograph ca show", "heliograph ca show sensor-7.crt --json"))
def show(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A PEM certificate. Default: the authority's.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
    folder: Folder = FOLDER,
) -> None:
    """Show what a certificate says."""
    from heliograph.cli.files import read_file
    from heliograph.trust.certificates import facts_of

    path = file or folder / f"{AUTHORITY}.crt"
    try:
        facts = facts_of(read_file(path, "the certificate"))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    if as_json:
        import json

        print(json.dumps(_plain(facts)))
        return
    for name, value in _plain(facts).items():
        print(f"{name:<12} {', '.join(value) if isinstance(value, list) else value}")


def _plain(facts: Facts) -> dict[str, Any]:
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    state = "not yet valid" if facts.begins > now else "expired" if facts.ends <= now else "valid"
    return {
        "subject": facts.subject,
        "entity": facts.identity.entity if facts.identity else "",
        "roles": [str(role) for role in facts.identity.roles] if facts.identity else [],
        "hosts": list(facts.hosts),
        "authority": facts.authority,
        "begins": facts.begins.isoformat(),
        "ends": facts.ends.isoformat(),
        "state": state,
        "fingerprint": facts.fingerprint,
        "issuer": facts.issuer,
    }
