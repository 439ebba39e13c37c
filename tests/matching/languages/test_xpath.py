"""XPath: the same answers as libxml2 gives, one parse per event, and hostile documents and expressions refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from heliograph.errors import ConditionError, Reason
from heliograph.matching.condition import Event
from heliograph.matching.conditions import alone, covers, matches
from heliograph.matching.languages import compile, documents
from heliograph.matching.languages.xpath import document_of
from tests.examples import examples
from tests.matching.languages.attempts import attempt, check_attempt

ORDER = b"""<?xml version="1.0"?><order id="7"><customer>ann</customer><!-- note -->
<item sku="s1"><price>5</price></item><item sku="s2"><price>50</price><note>x</note></item></order>"""


def event(payload: bytes = ORDER, **headers: object) -> Event:
    return Event(b"t", json.dumps(headers).encode(), payload)


def selects(text: str, payload: bytes = ORDER) -> bool:
    return matches(compile("xpath", text), event(payload))


@pytest.mark.req("N9")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/order/@id = '7'", True),
        ("/order/@id > 7", False),
        ("//item[price > 40]", True),
        ("//item[price > 50]", False),
        ("item[@sku = 's1']/price > 9", False),  # from the root element; both facts hold, for different items
        ("item[@sku = 's2']/price > 9", True),
        ("//item[@sku='s1' and note]", False),
        ("//item[2]/price = 50", True),
        ("item[position() = last()]/@sku = 's2'", True),
        ("count(//item) = 2 and not(//refund)", True),
        ("not(//item)", False),
        ("customer = 'ann'", True),
        ("customer != 'ann'", False),
        ("starts-with(customer, 'a')", True),
        ("sum(//price) = 55", True),
        ("//price/text() = 5", True),
        ("-5 < //price", True),
        ("//item/../customer", True),
        ("(//item | //customer)[1] = 'ann'", True),
        ("//*[local-name() = 'note']", True),
        ("//comment", False),
        ("refund or customer", True),
        ("/", True),
    ],
)
def test_an_expression_is_true_or_false(text: str, wanted: bool) -> None:
    condition = compile("xpath", text)
    assert matches(condition, event()) is wanted
    assert compile("xpath", condition.text) == condition


def test_namespaces_are_declared() -> None:
    text = "declare namespace s = 'urn:shop'; //s:item[@sku = '1']"
    assert selects(text, b'<o xmlns="urn:shop"><item sku="1"/></o>')
    assert not selects(text, b'<o><item sku="1"/></o>')
    with pytest.raises(ConditionError, match="prefix"):
        compile("xpath", "//s:item")


def test_a_header_can_hold_the_document() -> None:
    condition = compile("xpath", "in header 'report': //error")
    assert matches(condition, event(b"", report="<r><error/></r>"))
    assert not matches(condition, event(b"<r><error/></r>", report="<r/>"))
    assert not matches(condition, event(b"<r><error/></r>", report=5))
    assert not matches(condition, event(b"<r><error/></r>"))
    assert not condition.reads_payload
    assert compile("xpath", "//error").reads_payload


def test_a_payload_is_parsed_once_per_event(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    real = documents.read_document
    monkeypatch.setattr(
        "heliograph.matching.languages.xpath.read_document", lambda data: (parsed.append(data), real(data))[1]
    )
    one = event()
    for number in range(20):
        matches(compile("xpath", f"//item[price > {number}]"), one)
        matches(compile("xpath", f"count(//item) > {number}"), one)
    bad = event(b"not XML")
    for number in range(20):
        assert not matches(compile("xpath", f"count(//item) > {number}"), bad)
    assert parsed == [ORDER, b"not XML"]


def test_equal_expressions_are_one_condition() -> None:
    assert compile("xpath", "//a [ b=3 and  c ]") == compile("xpath", "//child::a[c and b = 3.0]")
    assert covers(compile("xpath", "//a[b]"), compile("xpath", "// a[ b ]"))
    assert not covers(compile("xpath", "//a"), compile("xpath", "//a[b]")), "covering is by equal text only"


BOMB = b"""<!DOCTYPE b [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;">]><b>&c;</b>"""
EXTERNAL = b"""<!DOCTYPE b [<!ENTITY a SYSTEM "file:///etc/passwd">]><b>&a;</b>"""


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (BOMB, "document type"),
        (EXTERNAL, "document type"),
        (b'<!DOCTYPE b SYSTEM "http://127.0.0.1:1/x.dtd"><b/>', "document type"),
        ("<?xml version='1.0' encoding='utf-16'?><!DOCTYPE b><b/>".encode("utf-16"), "not XML"),
        ("<b>é</b>".encode("latin-1"), "not XML"),
        (b"<b>" * 40 + b"</b>" * 40, "levels"),
        (b"<b>" + b"<c/>" * 9_000 + b"</b>", "nodes"),
        (b"<b>" + b"x" * 70_000 + b"</b>", "bytes"),
        (b"<" + b"n" * 300 + b"/>", "name"),
        (b"<b>&nbsp;</b>", "not XML"),
        (b"<b><c></b>", "not XML"),
        (b"", "not XML"),
        (b"\0\xff", "not XML"),
        (b"<b>\xed\xa0\x80</b>", "not XML"),
    ],
)
def test_a_hostile_document_matches_nothing(payload: bytes, told: str) -> None:
    one = event(payload)
    assert not matches(compile("xpath", "//b or not(//b)"), one)
    assert told in document_of(one, None)


def test_documents_with_ever_new_names_are_read_and_nothing_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert selects("//known", b"<known/>")
    kept = len(documents._names)
    monkeypatch.setattr(documents, "NAMES_MAX", kept)
    text = "declare namespace s = 'urn:shop'; //never-seen[s:inner/@of > 3 and text() = 'é']/s:inner = 'y'"
    for number in range(20):
        inner = "<s:inner xmlns:s='urn:shop' of='4'>y</s:inner>"
        payload = f"<n{number}><never-seen a{number}='1'>é{inner}</never-seen></n{number}>"
        assert selects(text, payload.encode())
        assert selects(f"local-name(/*) = 'n{number}'", payload.encode())
        assert not selects("//known", payload.encode())
    assert len(documents._names) == kept
    assert selects("//known", b"<known/>")


def test_where_there_is_no_thread_left_only_documents_with_new_names_match_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread(call: object) -> None:
        raise RuntimeError("can't start new thread")

    assert selects("//known", b"<known/>")
    monkeypatch.setattr(documents, "NAMES_MAX", len(documents._names))
    monkeypatch.setattr(documents, "run_apart", no_thread)
    assert "can't start new thread" in document_of(event(b"<never-seen/>"), None)
    assert not selects("//never-seen", b"<never-seen/>")
    assert selects("//known", b"<known/>")


PUBLISHES_NEW_NAMES = """
import sys
import psutil
from heliograph.matching.languages.documents import NAMES_MAX, read_document

def name(number):
    return f"<n{number:07}{'x' * 90}/>"

def blanks(number):
    return f"<b>{number:059b}</b>".replace("0", " ").replace("1", chr(9))

def rise(first, last, part):
    before = psutil.Process().memory_info().rss
    for number in range(first, last, 500):
        parts = "".join(part(inner) for inner in range(number, number + 500))
        assert not isinstance(read_document(f"<r>{parts}</r>".encode()), str)
    return psutil.Process().memory_info().rss - before

kept = NAMES_MAX + 10_000
rise(0, kept, globals()[sys.argv[1]])
print(rise(kept, kept + 100_000, globals()[sys.argv[1]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("part", ["name", "blanks"])
def test_ever_new_names_and_blank_texts_take_no_memory(part: str) -> None:
    """100,000 of them, which take 8 to 15 MB where libxml2 keeps them."""
    ran = subprocess.run([sys.executable, "-c", PUBLISHES_NEW_NAMES, part], capture_output=True, check=True)
    assert int(ran.stdout) < 4_000_000


@pytest.mark.parametrize(
    ("text", "position", "told"),
    [
        ("", 0, "expected a path"),
        ("//a[", 4, "expected a path"),
        ("//a[b", 5, "expected ']'"),
        ("//a b", 4, "expected an operator or the end"),
        ("'x", 0, "that ends"),
        ("$x = 1", 0, "has no meaning"),
        ("a/following::b", 2, "one of the axes"),
        ("ancestor::a", 0, "one of the axes"),
        ("//a[../b]", 4, "parent inside a predicate"),
        ("//a[//b]", 4, "begins at its node"),
        ("//a = //b", 0, "two node sets"),
        ("document('x')", 0, "function of the core library"),
        ("re:test(a, 'x')", 0, "function of the core library"),
        ("id('x')", 0, "function of the core library"),
        ("count('x')", 0, "takes a node set"),
        ("contains(a)", 0, "does not take 1 arguments"),
        ("a | 3", 0, "joins node sets"),
        ("'x'[1]", 0, "only node sets"),
        ("processing-instruction()", 0, "function of the core library"),
        ("1" * 400, 0, "beyond what a float holds"),
    ],
)
def test_an_error_points_at_the_character(text: str, position: int, told: str) -> None:
    with pytest.raises(ConditionError) as raised:
        compile("xpath", text)
    assert told in raised.value.problem
    assert raised.value.position == position
    assert raised.value.reason is Reason.CONDITION_INVALID


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "(" * 5_000 + "a" + ")" * 3_000,
        "(" * 17 + "a" + ")" * 17,
        "//*" + "[*" * 17 + "]" * 17,
        "//a//b[.//c]",
        "//a[.//b[.//c]]",
        "//a[.//b//c]",
        "//*" + "/*" * 70,
        " + ".join("1" * 33),
        "a" + " or a" * 300,
    ],
)
def test_an_expression_is_bounded(text: str) -> None:
    with pytest.raises(ConditionError) as raised:
        compile("xpath", text)
    assert raised.value.reason is Reason.CONDITION_OVER_LIMIT


def test_an_evaluation_beyond_its_budget_does_not_match() -> None:
    comb = b"<a>" + b"".join(b"<a>" * 28 + b"</a>" * 28 for _ in range(140)) + b"</a>"
    assert isinstance(document_of(event(comb), None), documents.Document)
    assert selects("//a", comb)
    assert not selects("//a//a", comb)


names = st.sampled_from(["a", "b", "c", "*"])
texts = st.sampled_from(["", "1", "2", "10", " 3 ", "-1.5", "x", "1e2", "+4", "é"])


@st.composite
def elements(draw: st.DrawFn, depth: int = 3) -> str:
    name = draw(st.sampled_from("abc"))
    attributes = "".join(f' {one}="{draw(texts)}"' for one in draw(st.sets(st.sampled_from("xy"))))
    inside = draw(st.lists(elements(depth - 1) if depth else texts, max_size=3)) if depth else [draw(texts)]
    return f"<{name}{attributes}>{''.join(inside)}</{name}>"


literals = st.sampled_from(["'1'", "'x'", "''", "1", "2", "10", "-1", "0.5", "' 3 '", "3", "100"])
operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


@st.composite
def paths(draw: st.DrawFn, depth: int, inside: bool = False) -> str:
    starts = ["", ".//", "./"] if inside else ["", "/", "//", ".//", "/*/"]
    steps = [draw(names) + draw(predicates(depth - 1)) for _ in range(draw(st.integers(1, 2)))]
    last = draw(st.sampled_from(["", "", "/@x", "/@*", "/text()", "/."]))
    return draw(st.sampled_from(starts)) + "/".join(steps) + last


@st.composite
def predicates(draw: st.DrawFn, depth: int) -> str:
    if depth <= 0 or draw(st.integers(0, 2)) == 0:
        return ""
    return "".join(f"[{draw(expressions(depth, True))}]" for _ in range(draw(st.integers(1, 2))))


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3, inside: bool = False) -> str:
    path = draw(paths(depth - 1, inside))
    match draw(st.integers(0, 9)):
        case 0 | 1:
            return path
        case 2 | 3 | 4:
            return f"{path} {draw(operators)} {draw(literals)}"
        case 5:
            return f"{draw(literals)} {draw(operators)} {path}"
        case 6:
            return f"not({path})"
        case 7 if depth > 0:
            word = draw(st.sampled_from(["and", "or"]))
            return f"({draw(expressions(depth - 1, inside))}) {word} {draw(expressions(depth - 1, inside))}"
        case 8:
            return draw(st.sampled_from(["2", "last()", "position() = 1"])) if inside else f"count({path}) = 2"
    return f". {draw(operators)} {draw(literals)}"


@pytest.mark.slow
@examples(300)
@given(expressions(), elements())
def test_facts_and_evaluation_say_what_libxml2_says(text: str, document: str) -> None:
    condition = attempt("xpath", text)
    if isinstance(condition, ConditionError):
        assert condition.reason is Reason.CONDITION_OVER_LIMIT
        return
    parser = etree.XMLParser(remove_blank_text=True)
    expected = etree.XPath(f"boolean({text})")(etree.fromstring(document.encode(), parser))
    assert matches(condition, event(document.encode())) is expected
    assert alone(condition)(event(document.encode())) is expected
    assert compile("xpath", condition.text) == condition


@examples(150)
@given(st.text(max_size=40) | st.text(alphabet="ab/.@*[]()='<>!|-+1,:\" andortextnode", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    check_attempt("xpath", text, event())


@examples(100)
@given(st.binary(max_size=80) | st.text(alphabet="<>/ab=\"'&;! -[]?xmlDOCTYPE", max_size=80).map(str.encode))
def test_any_payload_is_a_document_or_none(payload: bytes) -> None:
    matches(compile("xpath", "//a[b = 1]"), event(payload))
