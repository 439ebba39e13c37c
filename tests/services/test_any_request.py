"""Any request to any service is answered or refused, and costs nothing else: present and future services."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph import node
from heliograph.discovery.brokers import messages
from heliograph.services.declared import Service
from heliograph.wire.requests import RequestTypes
from tests.examples import examples
from tests.services.greeter import GREETER_SERVICE
from tests.services.office import Office

pytestmark = pytest.mark.req("O6", "N18", "N10")

NAMES = [each.name for each in node.SERVICES]
STORE = "0123456789abcdef"
DEEP = 3_000
POOL: list[Any] = [
    *("", "#", "orders/#", "main", "dynamic", "static", "predicates", "price < 10", "true", "first", "topic", "normal"),
    *("overview", "links", "map", STORE, "ab" * 32, "eA==", "127.0.0.1", "k price desc", "direct", "near", "\x00"),
    *(0, 1, 2, 1_000, (1 << 62) - 1, 0.5, True, False, None, -1, 60),
    *([], {}, ["eA=="], [[0, 1]], [["part", 1]], {"price": 9}, {"a": "b", "c": True}),
]
"""Values that fit some field; each field gets those that it accepts. A field of a new service may need one more."""
HOSTILE = [
    b"1e999",
    b"-1e999",
    b"NaN",
    b"9" * 4_400,
    b"9" * 40,
    b'"\xff"',
    b'"\\ud800"',
    b'"\xed\xa0\x80"',
    b'"\\u0000"',
    b"[" * DEEP + b"]" * DEEP,
    b"[" * DEEP,
    b'{"":' * 500 + b"1" + b"}" * 500,
    b"",
]
NUMBERS = st.integers() | st.floats() | st.integers(-(1 << 70), 1 << 70)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=20) | st.sampled_from(POOL),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def service_of(name: str) -> Service[Any]:
    return next(each for each in node.SERVICES if each.name == name)


@cache
def requests_of(name: str) -> RequestTypes[Any] | None:
    return service_of(name).requests()


class Field(msgspec.Struct):
    """A field of a request, with values that it accepts."""

    name: str
    required: bool
    values: list[bytes]


@cache
def fields_of(kind: type[msgspec.Struct]) -> list[Field]:
    found = []
    for field in msgspec.structs.fields(kind):
        values = [json.dumps(each).encode() for each in POOL if accepts(field.type, each)]
        assert values or not field.required or kind is messages.CertificateRequest, f"POOL lacks a {field.name}"
        found.append(Field(field.encode_name, field.required, values))
    return found


def accepts(wanted: Any, value: Any) -> bool:
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        return False
    return True


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


@st.composite
def bodies_of(draw: st.DrawFn, name: str) -> bytes:
    """A request to this service, of which something may be wrong."""
    requests = requests_of(name)
    if requests is None:
        return as_json(draw(VALUES))
    kind = draw(st.sampled_from(requests.kinds))
    wrong = draw(st.sampled_from(["", "", "field", "field", "raw", "doubled", "missing", "unknown", "whole"]))
    if wrong == "whole":
        return draw(st.sampled_from(HOSTILE) | VALUES.map(as_json))
    tag = kind.__struct_config__.tag
    said: dict[str, bytes] = {} if tag is None else {"do": json.dumps(tag).encode()}
    for field in fields_of(kind):
        if field.values and (field.required or draw(st.booleans())):
            said[field.name] = draw(st.sampled_from(field.values))
    names = [field.name for field in fields_of(kind)] or ["do"]
    chosen, extra = draw(st.sampled_from(names)), b""
    if wrong == "field":
        said[chosen] = as_json(draw(VALUES))
    elif wrong == "raw":
        said[chosen] = draw(st.sampled_from(HOSTILE))
    elif wrong == "doubled":
        extra = b',"%b":%b' % (chosen.encode(), draw(st.sampled_from(HOSTILE)))
    elif wrong == "missing":
        said.pop(chosen, None)
    elif wrong == "unknown":
        extra = b',"unknown":%b' % draw(st.sampled_from(HOSTILE))
    pairs = b",".join(b'"%b":%b' % (name.encode(), value) for name, value in said.items())
    return b"{%b%b}" % (pairs, extra)


def in_its_form(name: str, body: bytes) -> bytes:
    """The responder's requests are discovery messages, not JSON: half of them get their head."""
    if name != "discovery" or len(body) % 2:
        return body
    whole = messages.write(messages.CertificateRequest(b"12345678"), pad=False)
    return whole[: -len(body[:8])] + body[:200]


OFFICES: list[Office] = []


def an_office() -> Office:
    """The office of all examples, unless the last one has drained its broker."""
    if not OFFICES or OFFICES[0].machines[node.BROKER].report("usage")["draining"]:
        OFFICES[:] = [Office()]
    return OFFICES[0]


@pytest.mark.parametrize("name", NAMES)
def test_any_request_is_answered_or_refused_and_the_next_one_works(name: str) -> None:
    @examples(150)
    @given(bodies_of(name))
    def check(body: bytes) -> None:
        office = an_office()
        asked = in_its_form(name, body).replace(STORE.encode(), office.store.encode())
        outcome = office.outcome(office.ask(name, asked))
        assert outcome != "internal_error"
        if requests_of(name) is None:
            assert outcome == "service_unknown"
        assert not [note for note in office.notes if note.level == "error"]
        assert not office.hung_up
        if not office.machines[node.BROKER].report("usage")["draining"]:
            assert office.outcome(office.ask("admin", b'{"do":"report"}')) == ""

    check()
    OFFICES.clear()


def test_a_service_that_is_added_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is all that the property knows of a service."""
    monkeypatch.setattr(node, "SERVICES", (*node.SERVICES, GREETER_SERVICE))
    requests_of.cache_clear()
    office = Office()
    assert office.outcome(office.ask("greeter", b'{"name":"Ada"}')) == ""
    deep = b'{"name":"Ada","unknown":%b}' % (b"[" * DEEP + b"]" * DEEP)
    for body in (b'{"name":5}', b"{}", b'{"name":"\xff"}', deep, *HOSTILE):
        assert office.outcome(office.ask("greeter", body)) == "body_malformed"
    requests_of.cache_clear()
