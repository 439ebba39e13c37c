"""The broker as one of many: its cluster, its key, its links."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.broker.config import LinkConfig, NetworkConfig
from heliograph.config.load import load_settings, parse_settings
from heliograph.config.sources import Option
from heliograph.errors import ConfigError

pytestmark = pytest.mark.req("O5", "N18")

KEY = "0123456789abcdef"

EVERYTHING = """
[tls]
authority = "authority.crt"

[network]
cluster = "north"
slot = 3
key_file = "keys/network.key"
heartbeat_ms = 100
suspect_ms = 400
dead_ms = 1000
interests_max = 100

[[network.links]]
host = "b.example.org"

[[network.links]]
host = "::1"
port = 4800
secure = true
"""


def problems_of(text: str, environment: dict[str, str] | None = None, *options: Option) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, environment, options)
    return caught.value.problems


def settings_file(folder: Path, key: str | bytes = KEY, mode: int = 0o600) -> Path:
    file = folder / "heliograph.toml"
    file.write_text('[network]\nkey_file = "network.key"\n')
    (folder / "network.key").write_bytes(key if isinstance(key, bytes) else key.encode())
    (folder / "network.key").chmod(mode)
    return file


def test_every_key_of_the_network_arrives() -> None:
    settings = parse_settings(EVERYTHING, file=Path("/srv/heliograph.toml"))

    assert settings.broker.network == NetworkConfig(
        cluster="north",
        slot=3,
        key_file="/srv/keys/network.key",
        dials_secure=True,
        links=(LinkConfig(host="b.example.org"), LinkConfig(host="::1", port=4800, secure=True)),
        heartbeat_ms=100,
        suspect_ms=400,
        dead_ms=1000,
        interests_max=100,
    )


def test_links_can_be_changed_and_added_by_the_environment() -> None:
    environment = {
        "HELIOGRAPH_NETWORK__LINKS__1__PORT": "4900",
        "HELIOGRAPH_NETWORK__LINKS__2__HOST": "c.example.org",
        "HELIOGRAPH_NETWORK__SLOT": "9",
    }

    network = parse_settings(EVERYTHING, environment).broker.network

    assert [(link.host, link.port) for link in network.links] == [
        ("b.example.org", 4717),
        ("::1", 4900),
        ("c.example.org", 4717),
    ]
    assert network.slot == 9


def test_links_of_the_command_line_come_on_top() -> None:
    options = [
        Option("network.links.host", "c", "--link"),
        Option("network.links.port", "1", "--link"),
        Option("network.links.host", "d", "--link"),
    ]

    links = parse_settings(EVERYTHING, {}, options).broker.network.links

    assert [(link.host, link.port) for link in links[2:]] == [("c", 1), ("d", 4717)]


def test_the_key_is_read_from_its_file_and_shown_nowhere(tmp_path: Path) -> None:
    settings = load_settings(settings_file(tmp_path, f"  {KEY}\n"), {}, Path("/"))

    assert settings.broker.network.key == KEY.encode()
    assert KEY not in repr(settings)


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    ("key", "mode", "told"),
    [
        (KEY, 0o640, "others can read this key; run: chmod 600"),
        (KEY, 0o604, "others can read this key; run: chmod 600"),
        ("short\n", 0o600, "at least 16 bytes, this one has 5"),
        (b"x" * 5_000, 0o600, "at most 4096 bytes"),
    ],
)
def test_a_bad_key_file_is_refused_by_name(tmp_path: Path, key: str | bytes, mode: int, told: str) -> None:
    file = settings_file(tmp_path, key, mode)
    with pytest.raises(ConfigError) as caught:
        load_settings(file, {}, tmp_path)

    (problem,) = caught.value.problems
    assert problem.startswith(f"{file}: network.key_file = '{tmp_path}/network.key': ")
    assert told in problem


def test_a_key_file_that_is_not_there_is_refused_by_what_the_user_typed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {"HELIOGRAPH_NETWORK__KEY_FILE": "gone.key"}, tmp_path)

    (problem,) = caught.value.problems
    assert problem.endswith("gone.key': there is no such file (from HELIOGRAPH_NETWORK__KEY_FILE)")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[network]\nslot = 64", "network.slot = 64: must be between 0 and 63"),
        ("[network]\nslot = 'one'", "network.slot = 'one': must be a whole number (0 to 63"),
        ("[network]\nlink = []", "network.link: unknown key; did you mean 'links'?"),
        ("[network]\nkey = 'secret'", "network.key: unknown key; did you mean 'key_file'?"),
        ("[network]\nlinks = 3", "network.links = 3: must be written as [[network.links]] tables"),
        ("[[network.links]]\nport = 1", "network.links[0].host is missing: must be an address or host name"),
        ("[[network.links]]\nhost = ''", "network.links[0].host = '': must be an address or host name"),
        ("[[network.links]]\nhost = 'b'\nport = 0", "network.links[0].port = 0: must be between 1 and 65535"),
        ("[[network.links]]\nhost = 'b'\nprot = 1", "network.links[0].prot: unknown key; did you mean 'port'?"),
        (
            "[[network.links]]\nhost = 'b'\n[[network.links]]\nhost = 'b'",
            "network.links[1]: there is a link to b:4717 already",
        ),
        ("[network]\nheartbeat_ms = 5000", "network: heartbeat_ms must be below suspect_ms"),
    ],
)
def test_a_bad_value_is_refused(text: str, told: str) -> None:
    (problem,) = problems_of(text, {"HELIOGRAPH_NETWORK__KEY_FILE": "network.key"})

    assert problem.startswith(told)


def test_brokers_that_could_not_prove_themselves_are_told_how() -> None:
    (problem,) = problems_of("", {}, Option("network.links.host", "b", "--link"))

    assert "network.key_file" in problem
    assert "tls.certificate" in problem
    assert problem.endswith("(from --link)")


def test_a_secure_link_without_anything_of_tls_is_refused() -> None:
    (problem,) = problems_of("[network]\nkey_file = 'k'\n[[network.links]]\nhost = 'b'\nsecure = true")

    assert problem.startswith("network.links[0].host: a secure link needs tls.authority")


def test_a_link_with_certificates_needs_no_key() -> None:
    tls = '[tls]\ncertificate = "a.crt"\nkey = "a.key"\nauthority = "authority.crt"\n'

    assert parse_settings(f"{tls}[[network.links]]\nhost = 'b'\nsecure = true").broker.network.links[0].secure
