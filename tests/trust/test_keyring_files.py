"""A keyring from the files that `heliograph ca` writes, and what is said when they are not as they should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import time_ns

import pytest
from typer.testing import CliRunner

from heliograph.cli.main import app
from heliograph.config.keyring_files import load_keyring
from heliograph.errors import ConfigError
from heliograph.model.identity import Role
from heliograph.trust.config import TlsConfig

DOMAIN = b"test/statement/1"


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str], TlsConfig]:
    """The three files of an entity of this test's authority."""

    def run(*words: str) -> None:
        result = CliRunner().invoke(app, ["ca", *words, "--dir", str(tmp_path)])
        assert result.exit_code == 0, result.output

    def make(entity: str) -> TlsConfig:
        if not (tmp_path / f"{entity}.crt").exists():
            run("issue", entity, "--role", "broker")
        return TlsConfig(
            certificate=str(tmp_path / f"{entity}.crt"),
            key=str(tmp_path / f"{entity}.key"),
            authority=str(tmp_path / "authority.crt"),
        )

    run("init")
    return make


@pytest.mark.req("B17")
def test_parties_with_files_of_one_authority_believe_each_other(files: Callable[[str], TlsConfig]) -> None:
    one, other = load_keyring(files("broker-1")), load_keyring(files("broker-2"))
    assert one is not None
    assert one.own is not None
    assert other is not None
    other.learn(one.own.chain, time_ns())
    signed = other.verify(DOMAIN, one.sign(DOMAIN, b"hello"), time_ns(), Role.BROKER)
    assert (signed.payload, signed.holder.identity.entity) == (b"hello", "broker-1")
    assert one.open(DOMAIN, other.seal(signed.holder, DOMAIN, b"for you")) == b"for you"


def test_a_party_with_the_authority_only_verifies_and_does_not_sign(files: Callable[[str], TlsConfig]) -> None:
    made = load_keyring(TlsConfig(authority=files("broker-1").authority))
    broker = load_keyring(files("broker-1"))
    assert made is not None
    assert broker is not None
    assert broker.own is not None
    assert made.own is None
    assert made.learn(broker.own.chain, time_ns()).identity.entity == "broker-1"


def test_no_files_make_no_keyring() -> None:
    assert load_keyring(TlsConfig()) is None


def test_every_problem_with_the_files_is_told_at_once(files: Callable[[str], TlsConfig], tmp_path: Path) -> None:
    good, other = files("broker-1"), files("broker-2")
    wrong_key = replace(good, key=other.key, authority=good.certificate)
    missing = replace(good, certificate=str(tmp_path / "gone.crt"), key="")
    with pytest.raises(ConfigError) as caught:
        load_keyring(wrong_key)
    assert ["not an authority" in problem for problem in caught.value.problems] == [True, False]
    assert "does not belong to the certificate" in caught.value.problems[1]
    with pytest.raises(ConfigError) as caught:
        load_keyring(missing)
    assert len(caught.value.problems) == 2
    assert "name both or neither" in caught.value.problems[0]
    assert "gone.crt' cannot be read" in caught.value.problems[1]


def test_a_key_that_others_can_read_is_refused(files: Callable[[str], TlsConfig]) -> None:
    tls = files("broker-1")
    Path(tls.key).chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_keyring(tls)
