"""`heliograph token`: tokens for set-ups without certificates.

In:    entities and roles.
Out:   a new random token, shown once; a file of salts and digests for the broker.
State: the token file.
Not here: digests and the file's text (trust/tokens.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli.shape import examples, group, say
from heliograph.errors import HeliographError, UsageError
from heliograph.model.identity import Role, entity_is_valid

if TYPE_CHECKING:
    from heliograph.trust.tokens import TokenRecord

app = group("Make tokens, which prove an entity's identity.")

TokenFile = Annotated[Path, typer.Option("--file", help="The broker's token file (tokens.file in its settings).")]
Force = Annotated[bool, typer.Option("--force", help="Replace what exists.")]
FILE = Path("heliograph-tokens.toml")


@app.command(
    epilog=examples(
        "heliograph token add sensor-7 --out sensor-7.token",
        "heliograph token add alice --role client --role admin --file /etc/heliograph/tokens.toml",
    )
)
def add(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="The entity's id: letters, digits and . _ @ -")],
    role: Annotated[list[Role] | None, typer.Option(help="What it may be; can be repeated. Default: client.")] = None,
    file: TokenFile = FILE,
    out: Annotated[Path | None, typer.Option(help="Write the token to this file instead of printing it.")] = None,
    force: Force = False,
) -> None:
    """Make a token. It is shown once: the file keeps only a digest of it."""
    import secrets

    from heliograph.cli.files import locked, refuse_existing, write_file
    from heliograph.trust.tokens import SALT_BYTES, hash_token, save_tokens

    if not entity_is_valid(entity):
        raise UsageError(f"{entity!r} is not an entity id: letters, digits and . _ @ - only, at most 128")
    if out is not None and not force:
        refuse_existing(out)
    token = secrets.token_urlsafe(32)
    with locked(file.parent):
        records = _load(file) if file.exists() else {}
        if entity in records and not force:
            raise HeliographError(f"{entity} has a token in {file}; add --force to replace it")
        records[entity] = hash_token(entity, role or [Role.CLIENT], token, secrets.token_bytes(SALT_BYTES))
        if out is not None:  # first the token, then its digest: in the other order the token could be lost
            write_file(out, f"{token}\n".encode(), force=force)
        write_file(file, save_tokens(records.values()).encode(), force=True)
    if out is None:
        print(token)
    say(f"{entity} added to {file}; {'the token is in ' + str(out) if out else 'the token is not shown again'}")


@app.command(name="list")
def list_tokens(
    file: TokenFile = FILE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """List the entities that have a token, with their roles."""
    import json

    for record in _load(file).values():
        roles = [str(role) for role in record.roles]
        print(
            json.dumps({"entity": record.entity, "roles": roles}) if as_json else f"{record.entity} {','.join(roles)}"
        )


@app.command()
def remove(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Whose token.")],
    file: TokenFile = FILE,
) -> None:
    """Remove an entity's token. A running broker learns it by `heliograph broker reload`, and ends its links."""
    from heliograph.cli.files import locked, write_file
    from heliograph.trust.tokens import save_tokens

    with locked(file.parent):
        records = _load(file)
        if entity not in records:
            raise HeliographError(
                f"{entity} has no token in {file}; `heliograph token list --file {file}` lists those that have"
            )
        del records[entity]
        write_file(file, save_tokens(records.values()).encode(), force=True)
    say(f"{entity} removed from {file}")


def _load(file: Path) -> dict[str, TokenRecord]:
    from heliograph.cli.files import read_file
    from heliograph.trust.tokens import load_tokens

    text = read_file(file, "the token file (`heliograph token add` makes it)").decode(errors="replace")
    return {record.entity: record for record in load_tokens(text, str(file))}
