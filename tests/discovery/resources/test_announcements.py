"""What brokers publish about their resources says whose they are and where."""

from __future__ import annotations

import json

import pytest

from heliograph.discovery.resources.conditions import read_condition
from heliograph.discovery.resources.desk import ResourceAnnouncer
from heliograph.discovery.resources.hosting import HostedResource
from heliograph.discovery.resources.messages import AdvertisedResource


@pytest.mark.req("S2", "O8")
def test_an_announcement_names_owner_and_host() -> None:
    said: list[tuple[bytes, bytes]] = []
    announcer = ResourceAnnouncer(lambda *given: said.append(given), lambda now: now + 5, lambda: "b1")
    where = read_condition("disk between 0 and 9").text
    hosted = HostedResource(AdvertisedResource(7, False, where, 1, "h"), read_condition(where), "ada", 0, 0, {}, 0)
    announcer.announce(hosted, "updated", {"disk": 3}, 10)
    ((topic, payload),) = said
    assert topic == b"System/Resources/0000000000000007/updated"
    row = json.loads(payload)
    said = (row["owner"], row["host"], row["model"], row["values"], row["at"])
    assert said == ("ada", "b1", "dynamic", {"disk": 3}, 15)
