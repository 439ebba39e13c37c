"""Options that all commands share which run a broker, a store or a directory.

In:    what a user typed.
Out:   the types of these options; options as settings.
State: none.
Not here: the options of one command (broker_run.py, store.py, bdn.py, tdn.py), settings (config/).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliograph.errors import UsageError

if TYPE_CHECKING:
    from heliograph.config.sources import Option

Key = Annotated[Path | None, typer.Option(help="The certificate's private key.")]
Authority = Annotated[Path | None, typer.Option(help="The authority that signed others' certificates.")]
Tokens = Annotated[Path | None, typer.Option(help="The token file.")]
KeptLinks = Annotated[
    list[str] | None, typer.Option(metavar="HOST:PORT", help="Keep a link to this broker; can be repeated.")
]
NetworkKey = Annotated[Path | None, typer.Option(help="The key that all brokers of the network have.")]
LogLevel = Annotated[str | None, typer.Option(help="debug, info, warning or error.")]
LogFormat = Annotated[str | None, typer.Option(help="text or json.")]

Given = tuple[str, Any, str]
"""A setting, its value, and the option that the user typed."""


def identity_settings(certificate: Path | None, key: Path | None, authority: Path | None) -> tuple[Given, ...]:
    """The settings of a node's certificate."""
    return (
        ("tls.certificate", certificate, "--certificate"),
        ("tls.key", key, "--key"),
        ("tls.authority", authority, "--authority"),
    )


def log_settings(level: str | None, format: str | None) -> tuple[Given, ...]:
    """The settings of a node's log."""
    return (("log.level", level, "--log-level"), ("log.format", format, "--log-format"))


def refuse_password(place: str, typed: str) -> None:
    """UsageError if the place that this option names contains a password."""
    from heliograph.model.places import ELSEWHERE, has_password, masked

    if has_password(place):
        said = "all users of this machine can see a password in an argument"
        raise UsageError(f"{typed} = {masked(place)!r}: {said}; {ELSEWHERE}, or in the variable PGPASSWORD")


def options_of(given: Iterable[Given]) -> list[Option]:
    """Those that have a value."""
    from heliograph.config.sources import Option

    return [Option(path, str(value), typed) for path, value, typed in given if value is not None]
