"""Where a command's Spark runs and how it is set: the options that all commands with Spark share.

In:    ``--master``, ``--remote``, ``--conf``, ``--packages``.
Out:   SparkPlace, in place of a command's parameter ``at``.
State: none.
Not here: the session (pipeline/session.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from heliograph.cli.connection import with_options
from heliograph.errors import UsageError


@dataclass(frozen=True, slots=True)
class SparkPlace:
    """Where Spark runs, and its settings."""

    master: str = ""
    remote: str = ""
    conf: Sequence[str] = ()
    packages: str = ""

    @property
    def is_elsewhere(self) -> bool:
        """True if its workers may be on other machines."""
        return bool(self.master or self.remote)

    def settings(self) -> dict[str, str]:
        """Spark's settings. UsageError if something cannot be meant."""
        if self.master and self.remote:
            raise UsageError("give --master or --remote, not both")
        if self.packages and self.remote:
            raise UsageError("--packages is for a Spark that starts here: give it to the Spark Connect server")
        found = {}
        for each in self.conf:
            name, sign, value = each.partition("=")
            if not sign or not name.startswith("spark."):
                raise UsageError(f"--conf {each}: it should be like spark.ui.enabled=true")
            found[name.strip()] = value.strip()
        if self.packages:
            found["spark.jars.packages"] = self.packages
        return found


HERE = SparkPlace()


def _place(
    master: Annotated[
        str, typer.Option("--master", help="A Spark master, such as spark://host:7077. Default: this process.")
    ] = "",
    remote: Annotated[str, typer.Option("--remote", help="A Spark Connect server, such as sc://host:15002.")] = "",
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="K=V", help="A setting of Spark, such as spark.ui.enabled=true; repeatable."),
    ] = None,
    packages: Annotated[
        str, typer.Option("--packages", metavar="LIST", help="Maven packages for Spark, as in spark-submit.")
    ] = "",
) -> SparkPlace:
    return SparkPlace(master, remote, tuple(conf or ()), packages)


def with_spark(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options in place of its parameter ``at``."""
    return with_options(command, "at", _place)
