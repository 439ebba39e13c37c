"""Tokens: what is kept of them, and that the file survives reading and writing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ConfigError
from heliograph.model.identity import Role
from heliograph.trust.tokens import (
    DIGEST_BYTES,
    SALT_BYTES,
    TokenRecord,
    hash_token,
    load_tokens,
    save_tokens,
    token_digest,
    verify,
)

SALT = bytes(range(SALT_BYTES))

entities = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,20}", fullmatch=True)
records = st.builds(
    TokenRecord,
    entity=entities,
    roles=st.lists(st.sampled_from(list(Role)), min_size=1, max_size=3, unique=True).map(tuple),
    salt=st.binary(min_size=SALT_BYTES, max_size=SALT_BYTES),
    digest=st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES),
)


def test_only_the_token_itself_verifies() -> None:
    record = hash_token("sensor-7", [Role.CLIENT], "right", SALT)

    assert verify(record, "right")
    assert not verify(record, "wrong")
    assert not verify(record, "")


def test_the_token_is_not_in_what_is_kept() -> None:
    record = hash_token("sensor-7", [Role.CLIENT], "my-secret-token", SALT)

    assert "my-secret-token" not in save_tokens([record])
    assert b"my-secret-token".hex() not in save_tokens([record])


def test_the_same_token_with_another_salt_has_another_digest() -> None:
    assert token_digest("token", SALT) != token_digest("token", bytes(SALT_BYTES))


def test_the_digest_is_scrypt_as_documented() -> None:
    """A file written by this version must be readable by all later ones: the parameters may not drift."""
    assert token_digest("token", SALT).hex() == "783a840f1f7bdd32c1ae5cfba0965021334fbe16ff804b56140f85ad61f32da3"


@given(st.lists(records, max_size=5, unique_by=lambda record: record.entity))
def test_a_token_file_reads_back_as_written(written: list[TokenRecord]) -> None:
    assert load_tokens(save_tokens(written)) == tuple(written)


@pytest.mark.req("O6")
@given(st.one_of(st.text(), st.text(alphabet='[]token="\n abc={}#.0')))
def test_any_text_gives_records_or_a_config_error(text: str) -> None:
    problems = None
    try:
        load_tokens(text)
    except ConfigError as error:
        problems = error.problems
    assert problems is None or all(problems)


@pytest.mark.req("O5")
def test_all_problems_of_a_token_file_are_told_at_once() -> None:
    text = """
        extra = 1
        [[token]]
        entity = "not valid"
        roles = ["king"]
        salt = "00"
        digest = "xy"
        colour = "red"
        """

    with pytest.raises(ConfigError) as caught:
        load_tokens(text, "tokens.toml")

    told = "\n".join(caught.value.problems)
    for word in ("extra", "not valid", "king", "salt", "digest", "colour"):
        assert word in told
    assert all(problem.startswith("tokens.toml") for problem in caught.value.problems)


def test_an_entity_has_one_token() -> None:
    record = hash_token("sensor-7", [Role.CLIENT], "token", SALT)

    with pytest.raises(ConfigError, match="has a token already"):
        load_tokens(save_tokens([record, record]))


def test_a_digest_of_the_wrong_shape_is_not_repeated_in_the_problem() -> None:
    with pytest.raises(ConfigError) as caught:
        load_tokens('[[token]]\nentity = "a"\nroles = ["client"]\nsalt = "00"\ndigest = "pasted-a-token-here"\n')

    assert "pasted-a-token-here" not in str(caught.value)
