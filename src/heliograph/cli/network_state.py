"""The folder of a local network: its key, its brokers' settings and logs, and which processes belong to it.

In:    a folder; the brokers that were started in it.
Out:   files that only their owner can read; which of the processes still run.
State: `network.json` in the folder, from `network up` to `network down`.
Not here: starting and stopping (network_processes.py), what the brokers report (maps/network_view.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from os.path import normpath
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

from heliograph.cli import network_secure
from heliograph.cli.files import read_file, write_file
from heliograph.errors import HeliographError
from heliograph.model.identity import NETWORK_LENGTH_MAX, network_is_valid
from heliograph.topology.toml_tables import read_table

if TYPE_CHECKING:
    from heliograph.topology.process_network import PlannedBroker

HOST = "127.0.0.1"
STATE, KEY = "network.json", "network.key"
STORES = "stores"  # the folder of the vaults; it is kept when a network is removed


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBroker:
    """A broker of a local network and the process that runs it."""

    name: str
    cluster: str
    slot: int
    port: int
    pid: int

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        """Its address for clients."""
        return f"heliograph://{self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDirectory:
    """A broker directory (BDN) of a local network and the process that runs it."""

    name: str
    port: int
    pid: int

    @property
    def address(self) -> str:
        """Its address, for UDP and TCP."""
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNetwork:
    """What was started in a folder."""

    brokers: tuple[LocalBroker, ...]
    links: tuple[tuple[str, str], ...]
    name: str = ""
    directories: tuple[LocalDirectory, ...] = ()

    @property
    def parts(self) -> tuple[LocalBroker | LocalDirectory, ...]:
        """Everything that has a process."""
        return (*self.brokers, *self.directories)


def default_folder() -> Path:
    """The folder of a network if the user gives none."""
    from heliograph.live.runtime import runtime_dir

    return (runtime_dir() / "network").absolute()


def default_name(folder: Path) -> str:
    """The name of a network if the user gives none: from its folder, and unique on this machine."""
    plain = "".join(letter for letter in folder.name if network_is_valid(f"x{letter}"))[: NETWORK_LENGTH_MAX // 2]
    return f"{plain.lstrip('._@-') or 'network'}-{sha256(str(folder).encode()).hexdigest()[:4]}"


def settings_of(folder: Path, name: str) -> Path:
    """A broker's settings file. It also identifies its process."""
    return folder / f"{name}.toml"


def log_of(folder: Path, name: str) -> Path:
    """A broker's log."""
    return folder / f"{name}.log"


def write_directory(folder: Path, name: str, port: int) -> None:
    """Write a directory's settings; `heliograph bdn run --config` works with them."""
    lines = ["[bdn]", f'name = "{name}"', f'host = "{HOST}"', f"port = {port}"]
    write_file(settings_of(folder, name), ("\n".join(lines) + "\n").encode(), force=True)


def write_settings(
    folder: Path,
    name: str,
    broker: PlannedBroker,
    ports: Iterable[int],
    directories: Iterable[LocalDirectory] = (),
    more: Iterable[str] = (),
) -> None:
    """Write a broker's settings, with links to these ports; `heliograph broker run --config` works with them."""
    lines = [
        "[broker]", f'name = "{broker.name}"',
        "", "[[listener]]", f'host = "{HOST}"', f"port = {broker.port}",
        "", "[network]", f'name = "{name}"', f'cluster = "{broker.cluster}"', f"slot = {broker.slot}",
        f'key_file = "{KEY}"',
    ]  # fmt: skip
    if addresses := [f'"{directory.address}"' for directory in directories]:
        lines += ["", "[discovery]", f"directories = [{', '.join(addresses)}]"]
    if broker.store:
        lines += ["", "[store]", "enabled = true", f'name = "{broker.name}"', f'place = "{folder / STORES}"']
    for port in ports:
        lines += ["", "[[network.links]]", f'host = "{HOST}"', f"port = {port}"]
    lines += more
    write_file(settings_of(folder, broker.name), ("\n".join(lines) + "\n").encode(), force=True)


def save(folder: Path, network: LocalNetwork) -> None:
    """Record what was started."""
    write_file(folder / STATE, json.dumps(asdict(network), indent=1).encode(), force=True)


def load(folder: Path) -> LocalNetwork | None:
    """What was started in this folder; None if nothing was."""
    path = folder / STATE
    if not path.exists():
        return None
    try:
        found = json.loads(read_file(path, "the network's state"))
    except ValueError:
        found = None
    problems: list[str] = []
    network = read_table(LocalNetwork, found, "", problems)
    if network is None or problems:
        raise HeliographError(
            f"{path} is not what `heliograph network up` wrote; end its processes by hand and remove it"
        )
    return network


def processes(folder: Path, network: LocalNetwork) -> dict[str, psutil.Process]:
    """The processes of this network's brokers and directories, by their names.

    They are recognised by their settings files, not by their process ids: the system may have reused an id, and a
    process that ended may have been restarted by hand.
    """
    names = {settings_of(folder, broker.name): broker.name for broker in network.parts}
    found = {}
    for process in psutil.process_iter():
        try:
            arguments = process.cmdline()  # empty for a process that has ended and was not waited for
            if "run" in arguments and ("broker" in arguments or "bdn" in arguments):
                place = Path(process.cwd())
                files = [Path(normpath(place / word.removeprefix("--config="))) for word in arguments]
                found.update({names[file]: process for file in files if file in names})
        except (psutil.Error, ValueError):
            continue  # it has ended, or we may not inspect it
    return found


def running(folder: Path, network: LocalNetwork) -> list[LocalBroker]:
    """The brokers whose processes run."""
    alive = processes(folder, network)
    return [broker for broker in network.brokers if broker.name in alive]


def remove_files(folder: Path, names: Iterable[str], *, keep_logs: bool = False) -> None:
    """Remove the files of `network up`; other files stay."""
    brokers = list(names)
    files = [folder / STATE, folder / KEY, *(settings_of(folder, name) for name in brokers)]
    if not keep_logs:
        files += [log_of(folder, name) for name in brokers]
    for file in files:
        file.unlink(missing_ok=True)


def clear(folder: Path, names: Iterable[str], *, keep_logs: bool) -> None:
    """Remove the files of `network up`, and the folder if it is empty then."""
    remove_files(folder, names, keep_logs=keep_logs)
    network_secure.remove(folder)
    try:
        folder.rmdir()
    except OSError:
        pass  # something else is in it
