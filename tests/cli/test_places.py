"""Places with a password: nobody sees the password but the database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.node_options import refuse_password
from heliograph.config.load import load_settings
from heliograph.config.sections import KEYS
from heliograph.config.sources import Option
from heliograph.discovery.topics.config import TopicDirectoryConfig
from heliograph.errors import ConfigError, UsageError
from heliograph.live.vaults.backend import VaultError
from heliograph.live.vaults.postgres import PostgresVault
from heliograph.live.vaults.topic_postgres import PostgresTopics
from heliograph.model.places import has_password, masked
from heliograph.node import configured
from heliograph.stores.config import StoreConfig
from heliograph.vault import Vault
from tests.cli.conftest import Run

pytestmark = pytest.mark.req("O6")

SECRET = "s3cret"
URL = f"postgresql://store:{SECRET}@db.example.org/helio"


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (URL, "postgresql://store:***@db.example.org/helio"),
        ("postgres://u:p@one:1,two:2/d?sslmode=require", "postgres://u:***@one:1,two:2/d?sslmode=require"),
        ("postgresql://u@h/d?password=p&x=1", "postgresql://u@h/d?password=***&x=1"),
        ("postgresql://u@h/d?pass%77ord=p", "postgresql://u@h/d?pass%77ord=***"),
        ("postgresql:///d?sslpassword=p", "postgresql:///d?sslpassword=***"),
        ("postgresql://u:p/w@x@h/d", "postgresql://u:***@h/d"),
    ],
)
def test_a_password_is_found_wherever_a_url_may_have_one(place: str, shown: str) -> None:
    assert masked(place) == shown
    assert has_password(place)
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "place", ["", "/var/lib/a:b@c", "postgresql://u@h:5432/d", "postgresql://h/d?sslmode=x", "postgresql://u:@h/d"]
)
def test_other_places_are_shown_as_they_are(place: str) -> None:
    assert masked(place) == place
    assert not has_password(place)


PLACES = [path for path, key in KEYS.items() if key.setting.is_place]


def test_every_key_for_a_place_is_one() -> None:
    assert [path for path in KEYS if path.endswith(".place")] == PLACES


@pytest.mark.parametrize("key", PLACES)
def test_an_option_with_a_password_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings(None, {}, tmp_path, [Option(key, URL, "--place")])
    text = str(refused.value)
    assert SECRET not in text
    for way in ("PGPASSFILE", key, KEYS[key].in_environment):
        assert way in text
    load_settings(None, {KEYS[key].in_environment: URL}, tmp_path)


def test_commands_that_open_a_vault_themselves_refuse_it_too(run: Run) -> None:
    for command in (["store", "verify", "s"], ["store", "compact", "s"], ["tdn", "verify", "--authority", __file__]):
        done = run(*command, "--place", URL)
        assert done.code != 0
        assert "PGPASSFILE" in done.err
        assert SECRET not in done.out + done.err
    with pytest.raises(UsageError):
        refuse_password(URL, "--place")


def test_config_show_masks_passwords_and_config_check_objects_to_a_file_that_others_can_read(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "heliograph.toml"
    file.write_text(f'[store]\nplace = "{URL}"\n')
    for mode, warned in ((0o644, True), (0o600, False)):
        file.chmod(mode)
        checked = run("config", "check", str(file))
        assert checked.code == 0
        assert ("store.place has a password; run: chmod 600" in checked.err) is warned
    for more in ([], ["--json"]):
        shown = run("config", "show", "--config", str(file), *more)
        assert "postgresql://store:***@db.example.org/helio" in shown.out
        assert SECRET not in checked.out + checked.err + shown.out + shown.err
    file.write_text("")
    file.chmod(0o644)
    assert "warning" not in run("config", "check", str(file)).err


def test_logs_of_nodes_and_of_crashes_have_no_password() -> None:
    configs = (StoreConfig(enabled=True, place=URL), TopicDirectoryConfig(enabled=True, place=URL))
    for each in configured(configs):
        assert SECRET not in each.service.describe(each.config, {})
        assert SECRET not in repr(each)
    assert SECRET not in repr(Vault(name="v", place=URL))


@pytest.mark.parametrize("place", [f"postgresql://u:{SECRET}%zz@h/d", f"postgresql://u@h/d?password={SECRET}%zz"])
@pytest.mark.parametrize("kind", [PostgresVault, PostgresTopics])
def test_what_the_database_library_says_about_a_bad_url_has_no_password(place: str, kind: Any) -> None:
    backend = kind(Vault(name="v", place=place))
    with pytest.raises(VaultError) as refused:
        backend.open()
    assert "***" in refused.value.problem
    assert SECRET not in refused.value.problem
