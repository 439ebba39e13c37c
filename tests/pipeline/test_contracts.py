"""Contracts: what the owner of a topic says of its payloads is read by others, if the owner signed it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import heliograph
from heliograph.cli.network_secure import environment
from heliograph.errors import HeliographError, RefusedError, UsageError
from heliograph.pipeline import jobs
from heliograph.pipeline.contracts import contract_of, read_contract
from heliograph.pipeline.decoded_tables import read_table
from heliograph.pipeline.payloads.formats import PayloadSchema
from tests.docs.test_topics import BLOCK, Walk
from tests.pipeline.test_payloads_page import PAGE

SIGNED = PayloadSchema("json", "celsius double not null")


class Forging:
    """A client in a network whose directories show what the owner did not sign."""

    entity = "bob"

    def __init__(self, client: Any) -> None:
        self._client = client

    def discover_topics(self, **options: Any) -> Iterator[Any]:
        for found in self._client.discover_topics(**options):
            yield replace(found, record=found.record[:-9] + b"x" + found.record[-8:])

    def verify_topic(self, found: Any) -> Any:
        return self._client.verify_topic(found)


@pytest.mark.live
@pytest.mark.sweep
@pytest.mark.req("S9")
def test_a_contract_is_what_the_owner_signed(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    (create,) = [text for _, text in BLOCK.findall(PAGE) if "topic create" in text]
    try:
        walk.play("", "$ heliograph network up 1 --secure --detach --dir trial")
        walk.play("alice", create)
        there = environment(tmp_path / "trial", walk.url, "bob")
        options = {"url": walk.url} | {name: there[f"HELIOGRAPH_{name.upper()}"] for name in ("certificate", "key")}
        options["authority"] = there["HELIOGRAPH_AUTHORITY"]
        files = {name: value for name, value in options.items() if name != "url"}
        with heliograph.connect_blocking(walk.url, **files) as bob:
            assert contract_of(bob, f"{walk.topic}/#") == SIGNED
            assert contract_of(bob, "sensors/#", walk.topic.split("/")[1]) == SIGNED
            with pytest.raises(RefusedError):
                contract_of(Forging(bob), f"{walk.topic}/#")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="only a created topic has a contract"):
                contract_of(bob, "sensors/#")
            with pytest.raises(HeliographError, match="topic_unknown"):
                contract_of(bob, f"Topics/{'0' * 8}-0000-8000-8000-{'0' * 12}/#")
        wanted = [read_table(f"readings={walk.topic}/#:contract")]
        decoded = jobs.decoded_tables(str(tmp_path / "tables"), options, wanted, "", print)
        assert [each.schema for each in decoded.wanted] == [SIGNED]
    finally:
        walk.run("heliograph network down --dir trial", "")


@pytest.mark.parametrize(
    "properties",
    [{}, {"payload.format": "xml", "payload.schema": "x"}, {"payload.format": "json"},
     {"payload.format": "json", "payload.schema": 5}, {"payload.format": 1, "payload.schema": "a int"}],
)  # fmt: skip
def test_a_topic_without_a_contract_says_so(properties: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="topic t has no contract"):
        read_contract("t", properties)
