"""The options of `heliograph pipeline archive` that make tables of payloads.

In:    --table NAME=FILTER:FORMAT, --schema NAME=FILE, --rejected-to TOPIC, as they were typed.
Out:   DecodedOptions, in place of a command's parameter ``decoding``; the tables, with their schemas.
State: none.
Not here: the command (pipeline.py), the tables (pipeline/decoded_tables.py).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli.connection import with_options
from heliograph.errors import UsageError

if TYPE_CHECKING:
    from heliograph.pipeline.decoded_tables import DecodedTable, DecodedTables


@dataclass(frozen=True, slots=True)
class DecodedOptions:
    """Which tables of payloads there are to be."""

    wanted: Sequence[DecodedTable] = ()
    rejected_to: str = ""

    def tables(self, root: str, options: Mapping[str, str], say: Callable[[str], None]) -> DecodedTables:
        """The tables in the archive ``root``; ``options`` are those of the source."""
        from heliograph.pipeline import jobs

        return jobs.decoded_tables(root, options, self.wanted, self.rejected_to, say)


NO_TABLES = DecodedOptions()


def _options(
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME=FILTER:FORMAT",
            help="Also a table of payloads as columns; FORMAT is json, avro, protobuf/MESSAGE, cloudevents, or "
            "contract, which is what the topic's owner described. Can be repeated.",
        ),
    ] = None,
    schema: Annotated[
        list[str] | None,
        typer.Option(
            "--schema",
            metavar="NAME=FILE",
            help="The schema of such a table: a list of columns, an Avro schema, or a Protobuf descriptor set. Without "
            "it, that of JSON is inferred from a sample.",
        ),
    ] = None,
    rejected_to: Annotated[
        str, typer.Option("--rejected-to", metavar="TOPIC", help="Publish payloads that do not fit there, too.")
    ] = "",
) -> DecodedOptions:
    return DecodedOptions(wanted_tables(table or (), schema or ()) if table or schema else (), rejected_to)


def with_tables(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options in place of its parameter ``decoding``."""
    return with_options(command, "decoding", _options)


def wanted_tables(tables: Sequence[str], schemas: Sequence[str]) -> list[DecodedTable]:
    """The tables, each with its schema if one is given."""
    from heliograph.pipeline.decoded_tables import read_table

    wanted = {each.name: each for each in map(read_table, tables)}
    if len(wanted) < len(tables):
        raise UsageError("--table: a name is there twice")
    for text in schemas:
        name, _, file = text.partition("=")
        if name not in wanted:
            raise UsageError(f"--schema {text!r}: there is no --table {name!r}; write NAME=FILE")
        table = wanted[name]
        wanted[name] = replace(table, schema=replace(table.schema, text=_read(table.schema.format, Path(file))))
    return list(wanted.values())


def _read(format: str, file: Path) -> str:
    data = file.read_bytes()
    try:
        text = b64encode(data).decode() if format == "protobuf" else data.decode().strip()
    except UnicodeDecodeError:
        raise UsageError(f"--schema: {file} is not a text in UTF-8") from None
    if not text:
        raise UsageError(f"--schema: {file} is empty")
    return text
