"""Any text, any variables: Settings or ConfigError, nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.config.load import parse_settings
from heliograph.config.sections import KEYS, LISTS, SECTIONS
from heliograph.errors import ConfigError
from tests.examples import examples

pytestmark = pytest.mark.req("O5", "O6")

names = st.one_of(
    st.sampled_from([key.rpartition(".")[2] for key in KEYS] + ["rules", "links"]),
    st.text(alphabet="abclinksmx_-", min_size=1, max_size=12),
)
plain = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(max_size=20),
    st.sampled_from(["none", "token", "certificate", "any", "allow", "deny", "127.0.0.1", "0.0.0.0", "main", "#", "*"]),
)
values = st.one_of(plain, st.lists(plain, max_size=3))
variables = st.dictionaries(
    st.one_of(
        st.sampled_from([key.in_environment for key in KEYS.values()]),
        st.sampled_from(["HELIOGRAPH_LISTENER__MAIN__PORT", "HELIOGRAPH_ACCESS__RULES__0__EFFECT"]),
        st.text(alphabet="ABLIMITSENR_0159", max_size=30).map(lambda text: f"HELIOGRAPH_{text}"),
    ),
    st.one_of(st.text(max_size=20), st.sampled_from(["0", "1", "true", "-1", "deny", "9" * 5000, "\udc80"])),
    max_size=6,
)


def written(value: Any) -> str:
    """TOML for a value; JSON's texts are TOML's but for DEL, which may not stand in one."""
    if isinstance(value, list):
        return f"[{', '.join(written(part) for part in value)}]"
    return json.dumps(value).replace("\x7f", "\\u007f")


@st.composite
def documents(draw: st.DrawFn) -> str:
    lines = []
    for section in draw(st.lists(st.sampled_from(list(SECTIONS) + ["tsl"]), max_size=6)):
        lines.append(f"[[{section}]]" if section == "listener" or section in LISTS else f"[{section}]")
        content = draw(st.dictionaries(names, values, max_size=4))
        lines += [f"{json.dumps(name)} = {written(value)}" for name, value in content.items()]
    return "\n".join(lines)


def read(text: str, environment: dict[str, str]) -> None:
    problems = None
    try:
        found = parse_settings(text, environment)
        assert found.broker.problems() == []
    except ConfigError as error:
        problems = error.problems
    assert problems is None or all(problems)
    for problem in problems or []:
        assert "\n" not in problem
        problem.encode()  # it can be printed


@given(st.one_of(st.text(), st.binary().map(lambda data: data.decode("latin-1"))))
@example("a = 0x" + "f" * 5000)
@example("limits.links_max = 0x" + "f" * 5000)
@example("limits.links_max = " + "9" * 5000)
@example("a = " + "[" * 5000)
@example("listener = [[]]")
@example("access = 1")
@example("[access]\nrules = {}")
@example("[network]\nlinks = 1\nslot = 99")
@example("[[network.links]]\n[[network.links]]\nhost = ''\nport = 0")
@example("limits.links_max = 1979-05-27")
@example("[[listener]]\nhost = '0.0.0.0\u2028'")
def test_any_text_gives_settings_or_a_config_error(text: str) -> None:
    read(text, {})


@pytest.mark.slow
@examples(150)
@given(documents(), variables)
def test_any_document_with_any_variables_gives_settings_or_a_config_error(
    text: str, environment: dict[str, str]
) -> None:
    read(text, environment)
