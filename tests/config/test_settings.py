"""Settings: one file, the environment on top, every problem at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.broker.config import BrokerConfig, ListenerConfig, RuleConfig
from heliograph.config.load import Settings, load_settings, parse_settings
from heliograph.config.sources import Option
from heliograph.errors import ConfigError
from heliograph.model.identity import Role
from heliograph.trust.tokens import hash_token, save_tokens

pytestmark = pytest.mark.req("O5")

EVERYTHING = """
[broker]
name = "plant-7"

[[listener]]
name = "main"
port = 0

[[listener]]
name = "web-1"
host = "0.0.0.0"
port = 4718
secure = true
auth = "any"

[limits]
links_max = 100

[access]
default = "deny"

[[access.rules]]
effect = "allow"
verbs = ["publish"]
topics = ["sensors/{entity}/#"]
who = ["sensor-*", "role:admin"]

[tls]
certificate = "broker.crt"
key = "keys/broker.key"
authority = "/etc/authority.crt"

[log]
level = "debug"
format = "json"
"""


def problems_of(text: str, environment: dict[str, str] | None = None, *options: Option) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, environment, options)
    return caught.value.problems


def source_of(settings: Settings, key: str) -> tuple[str, str]:
    return next((origin.source, origin.typed) for origin in settings.origins if origin.key == key)


def test_every_default_works() -> None:
    settings = parse_settings("")

    assert settings.broker == BrokerConfig()
    assert all(origin.source == "default" for origin in settings.origins)


def test_every_section_arrives_where_it_belongs() -> None:
    settings = parse_settings(EVERYTHING, file=Path("/srv/heliograph.toml"))

    assert settings.broker.name == "plant-7"
    assert settings.broker.listeners[1] == ListenerConfig(
        name="web-1", host="0.0.0.0", port=4718, secure=True, auth="any"
    )
    assert settings.broker.limits.links_max == 100
    assert settings.broker.access.default == "deny"
    assert settings.broker.access.rules == (
        RuleConfig(effect="allow", verbs=("publish",), topics=("sensors/{entity}/#",), who=("sensor-*", "role:admin")),
    )
    assert settings.log.format == "json"


def test_paths_are_relative_to_the_file_they_stand_in() -> None:
    environment = {"HELIOGRAPH_TOKENS__FILE": "tokens.toml"}

    settings = parse_settings(EVERYTHING, environment, file=Path("/srv/heliograph.toml"), folder=Path("/home/me"))

    assert settings.tls.certificate == "/srv/broker.crt"
    assert settings.tls.key == "/srv/keys/broker.key"
    assert settings.tls.authority == "/etc/authority.crt"
    assert settings.tokens.file == "/home/me/tokens.toml"


def test_the_environment_overrides_the_file_and_is_typed_by_the_key() -> None:
    environment = {
        "HELIOGRAPH_BROKER__NAME": "other",
        "HELIOGRAPH_LIMITS__LINKS_MAX": "7",
        "HELIOGRAPH_LISTENER__MAIN__PORT": "4000",
        "HELIOGRAPH_LISTENER__WEB_1__SECURE": "on",
        "HELIOGRAPH_ACCESS__RULES__0__VERBS": "publish, subscribe",
        "HELIOGRAPH_URL": "heliograph://elsewhere",  # a command's, not ours
        "PATH": "/bin",
    }

    settings = parse_settings(EVERYTHING, environment)

    assert settings.broker.name == "other"
    assert settings.broker.limits.links_max == 7
    assert settings.broker.listeners[0].port == 4000
    assert settings.broker.listeners[1].secure is True
    assert settings.broker.access.rules[0].verbs == ("publish", "subscribe")
    assert source_of(settings, "limits.links_max") == ("environment", "HELIOGRAPH_LIMITS__LINKS_MAX")
    assert source_of(settings, "access.default") == ("file", "access.default")
    assert source_of(settings, "limits.gaps_max") == ("default", "")


def test_the_default_listener_can_be_changed_without_a_file() -> None:
    assert parse_settings("", {"HELIOGRAPH_LISTENER__MAIN__PORT": "0"}).broker.listeners == (ListenerConfig(port=0),)


def test_rules_can_be_added_by_the_environment_in_the_order_of_their_numbers() -> None:
    names = [f"HELIOGRAPH_ACCESS__RULES__{number}__EFFECT" for number in range(12)]

    settings = parse_settings("", dict.fromkeys(reversed(names), "deny"))

    assert len(settings.broker.access.rules) == 12


def test_an_option_overrides_the_environment() -> None:
    option = Option("listener.port", "5000", "--listen")

    settings = parse_settings("", {"HELIOGRAPH_LISTENER__MAIN__PORT": "4000"}, [option])

    assert settings.broker.listeners[0].port == 5000
    assert source_of(settings, "listener.main.port") == ("option", "--listen")


def test_an_option_for_the_listener_needs_to_know_which() -> None:
    (problem,) = problems_of(
        '[[listener]]\nname = "a"\nport = 1\n[[listener]]\nname = "b"', {}, Option("listener.port", "1", "--listen")
    )

    assert problem.startswith("--listen: there are several listeners (listener.a, listener.b)")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[limits]\nlink_max = 1", "limits.link_max: unknown key; did you mean 'links_max'?"),
        ("[limit]", "limit: unknown section; did you mean 'limits'?"),
        ("[[listener]]\nprot = 1", "listener.main.prot: unknown key; did you mean 'port'?"),
        ('[[access.rules]]\neffect = "allow"\nwhom = ["*"]', "access.rules[0].whom: unknown key; did you mean 'who'?"),
        ("[access]\nrule = []", "access.rule: unknown key; did you mean 'rules'?"),
        ("[limits]\nlinks_max = 'many'", "limits.links_max = 'many': must be a whole number (above 0)"),
        ("[limits]\nlinks_max = true", "limits.links_max = true: must be a whole number (above 0)"),
        ("[limits]\nlinks_max = 1.5", "limits.links_max = 1.5: must be a whole number (above 0)"),
        ("[limits]\nlinks_max = 0", "limits.links_max = 0: must be above 0"),
        ("[[listener]]\nport = 70000", "listener.main.port = 70000: must be between 0 and 65535 (0 takes a free port)"),
        ("[[listener]]\nsecure = 'yes'", "listener.main.secure = 'yes': must be true or false"),
        ("[listener]\nport = 1", "listener = {'port': 1}: must be written as [[listener]] tables"),
        ("limits = 3", "limits = 3: must be a table, written [limits]"),
        ('[log]\nlevel = "loud"', "log.level = 'loud': must be one of debug, info, warning, error"),
        ("[[access.rules]]", "access.rules[0].effect is missing: must be allow or deny"),
        ('[[access.rules]]\neffect = "allow"\nverbs = []', "access.rules[0].verbs = []: must be a list of texts"),
        ('[[listener]]\nname = "a b"', "listener[0].name = 'a b': letters, digits and . _ @ - only"),
    ],
)
def test_a_bad_value_is_refused_with_its_key_the_value_and_what_is_allowed(text: str, told: str) -> None:
    (problem,) = problems_of(text)

    assert problem.startswith(told)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("HELIOGRAPH_LIMITS__LINK_MAX", "1", "unknown variable; did you mean HELIOGRAPH_LIMITS__LINKS_MAX?"),
        ("HELIOGRAPH_LIMITS_LINKS_MAX", "1", "unknown variable; did you mean HELIOGRAPH_LIMITS__LINKS_MAX?"),
        ("HELIOGRAPH_CONFG", "x", "unknown variable; did you mean HELIOGRAPH_CONFIG?"),
        ("HELIOGRAPH_PORT", "1", "write it with its section: HELIOGRAPH_BDN__PORT, "),
        ("HELIOGRAPH_LIMTS__X", "1", "no key of limits has such a name; `heliograph config explain limits` lists them"),
        ("HELIOGRAPH_LIMTS__LINK_MAX", "1", "unknown variable; did you mean HELIOGRAPH_LIMITS__LINKS_MAX?"),
        ("HELIOGRAPH_QQQ", "1", "unknown variable; `heliograph config explain` lists all keys"),
        ("HELIOGRAPH_LISTENER__MIAN__PORT", "1", "unknown listener; did you mean 'main'?"),
        ("HELIOGRAPH_LISTENER__MAIN__PROT", "1", "did you mean HELIOGRAPH_LISTENER__MAIN__PORT?"),
        ("HELIOGRAPH_ACCESS__RULES__7__EFFECT", "deny", "the rules are numbered 0 to 0"),
        ("HELIOGRAPH_LIMITS__LINKS_MAX", "many", "= 'many': must be a whole number (above 0)"),
        ("HELIOGRAPH_LISTENER__MAIN__SECURE", "perhaps", "= 'perhaps': must be true or false"),
        ("HELIOGRAPH_BROKER__NAME", "\udcff", "must be a text"),
    ],
)
def test_a_bad_variable_is_refused_by_its_own_name(variable: str, value: str, told: str) -> None:
    (problem,) = problems_of("", {variable: value})

    assert problem.startswith(variable)
    assert told in problem


def test_a_problem_across_keys_names_the_variable_that_caused_it() -> None:
    (problem,) = problems_of("", {"HELIOGRAPH_LIMITS__LINKS_MAX": "-1"})

    assert problem == "limits.links_max = -1: must be above 0 (from HELIOGRAPH_LIMITS__LINKS_MAX)"


def test_all_problems_are_told_at_once() -> None:
    text = '[limits]\nlinks_max = 0\nlink_max = 1\n[log]\nlevel = "loud"\n[[listener]]\nport = -1\n[tsl]\n'

    problems = problems_of(text, {"HELIOGRAPH_LOG__FORMAT": "xml", "HELIOGRAPH_NONSENSE": "1"})

    assert len(problems) == 7


@pytest.mark.req("O8")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "127.example.org"])
def test_anonymous_peers_from_other_machines_must_be_meant(host: str) -> None:
    text = f'[[listener]]\nhost = "{host}"\n'

    (problem,) = problems_of(text)

    assert "listener.main.allow_open = true" in problem
    assert parse_settings(text + "allow_open = true").broker.listeners[0].allow_open


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_anonymous_peers_on_this_machine_need_no_leave(host: str) -> None:
    assert parse_settings(f'[[listener]]\nhost = "{host}"').broker.listeners[0].is_local


def test_a_secure_listener_needs_its_files() -> None:
    problems = problems_of('[[listener]]\nsecure = true\nauth = "certificate"')

    assert any("needs tls.certificate and tls.key" in problem for problem in problems)
    assert any("needs tls.authority" in problem for problem in problems)


def test_a_listener_that_asks_for_tokens_needs_their_file() -> None:
    (problem,) = problems_of('[[listener]]\nauth = "token"')

    assert problem.startswith("listener.main.auth = 'token' needs tokens.file")


def test_two_listeners_may_not_share_a_name() -> None:
    (problem,) = problems_of("[[listener]]\n[[listener]]\n")

    assert problem == "listener.main: two listeners have this name"


def test_the_token_file_is_read_with_the_settings(tmp_path: Path) -> None:
    record = hash_token("sensor-7", [Role.CLIENT], "token", bytes(16))
    (tmp_path / "tokens.toml").write_text(save_tokens([record]))
    file = tmp_path / "heliograph.toml"
    file.write_text('[[listener]]\nauth = "token"\n[tokens]\nfile = "tokens.toml"\n')

    assert load_settings(file, {}, Path("/")).broker.tokens == (record,)


def test_files_that_are_named_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "heliograph.toml"
    file.write_text('[tls]\ncertificate = "a.crt"\n[tokens]\nfile = "b.toml"\n')

    with pytest.raises(ConfigError) as caught:
        load_settings(file, {}, tmp_path)

    assert caught.value.problems == [
        f"{file}: tls.certificate = '{tmp_path}/a.crt': there is no such file",
        f"{file}: tokens.file = '{tmp_path}/b.toml': there is no such file",
    ]


def test_a_problem_names_the_file_or_what_else_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "heliograph.toml"
    text = '[brocker]\n[limits]\nlinks_max = 0\n[[access.rules]]\nverbs = ["publish"]\n'

    with pytest.raises(ConfigError) as caught:
        parse_settings(text, {"HELIOGRAPH_LOG__LEVEL": "loud"}, file=file)

    assert caught.value.problems == [
        f"{file}: brocker: unknown section; did you mean 'broker'?",
        f"{file}: access.rules[0].effect is missing: must be allow or deny",
        f"{file}: limits.links_max = 0: must be above 0",
        "log.level = 'loud': must be one of debug, info, warning, error (from HELIOGRAPH_LOG__LEVEL)",
    ]


def test_the_file_is_the_chosen_one_else_the_variables_else_the_one_here_else_none(tmp_path: Path) -> None:
    for name in ("chosen", "variable", "heliograph"):
        (tmp_path / f"{name}.toml").write_text(f'[broker]\nname = "{name}"\n')
    variable = {"HELIOGRAPH_CONFIG": "variable.toml"}

    assert load_settings(tmp_path / "chosen.toml", variable, tmp_path).broker.name == "chosen"
    assert load_settings(None, variable, tmp_path).broker.name == "variable"
    assert load_settings(None, {}, tmp_path).broker.name == "heliograph"
    assert load_settings(None, {}, tmp_path / "nowhere").broker.name == "broker"


@pytest.mark.req("O6")
@pytest.mark.parametrize(
    ("content", "told"),
    [(b"\xff\xfe", "is not UTF-8"), (b"= 1", "not TOML"), (b"#" * (5 << 20), "is larger than")],
)
def test_a_file_that_cannot_be_settings_is_refused_by_name(tmp_path: Path, content: bytes, told: str) -> None:
    file = tmp_path / "heliograph.toml"
    file.write_bytes(content)

    with pytest.raises(ConfigError, match=told) as caught:
        load_settings(file, {}, tmp_path)

    assert "heliograph.toml" in str(caught.value)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml cannot be read: No such file"):
        load_settings(tmp_path / "gone.toml", {}, tmp_path)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_settings(tmp_path, {}, tmp_path)


def test_the_choice_of_kernels_is_not_taken_for_a_setting() -> None:
    assert parse_settings("", environment={"HELIOGRAPH_KERNELS": "numpy"}).origins == parse_settings("").origins
