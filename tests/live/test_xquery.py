"""XQuery runs in a process of its own that reaches nothing, and is killed when its time is over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from heliograph.errors import ProtocolError, Reason
from heliograph.live.xquery import QueryProcess
from heliograph.repository import SiftDocuments, Sifted

pytest.importorskip("saxonche")

DOCUMENTS = tuple(f"<hall><floor>{number}</floor><n>{number * 10}</n></hall>".encode() for number in range(8))
PATIENCE_MS = 60_000  # of a query that is to succeed on a busy machine


@pytest.fixture(scope="module")
def process() -> Iterator[QueryProcess]:
    made = QueryProcess()
    yield made
    made.close()


def sift(process: QueryProcess, query: str, documents: tuple[bytes, ...] = DOCUMENTS) -> Sifted:
    return process.sift(SiftDocuments(query, documents, PATIENCE_MS))


MEANING = {
    "a path": ("/hall/floor > 5", (6, 7)),
    "a FLWOR expression": ("for $f in /hall/floor where $f = 3 return <it>'s; here</it>", (3,)),
    "a prolog": ("declare function local:big($n) { $n > 60 }; local:big(/hall/n)", (7,)),
    "two declarations": ("declare variable $a := ';'; declare variable $b := 2; /hall/floor = $b", (2,)),
    "a comment": ("(: not ; here :) /hall/floor = 1", (1,)),
    "an error in each document": ("xs:date(/hall/floor) lt current-date()", ()),
    "several values, which have no truth": ("1, 2", ()),
}


@pytest.mark.req("T8")
@pytest.mark.parametrize(("query", "numbers"), MEANING.values(), ids=MEANING.keys())
def test_a_query_holds_for_a_document_where_its_boolean_value_is_true(
    process: QueryProcess, query: str, numbers: tuple[int, ...]
) -> None:
    assert sift(process, query) == Sifted(numbers)


@pytest.mark.parametrize("query", ["1 +", "", "true()) , (true()", "no:such-function()", "(: open"])
def test_what_is_no_query_is_told_with_its_problem(process: QueryProcess, query: str) -> None:
    sifted = sift(process, query)
    assert sifted.problem
    assert sifted.numbers == ()


NOWHERE = {
    "a file": "doc('file:///etc/hostname')",
    "a file by its path": "doc('/etc/hostname')",
    "a text file": "unparsed-text('file:///etc/passwd')",
    "whether a file is there": "unparsed-text-available('file:///etc/passwd')",
    "a folder": "exists(collection('file:///etc'))",
    "JSON": "exists(json-doc('file:///etc/passwd'))",
    "the network": "doc('http://127.0.0.1:1/')",
    "the environment": "environment-variable('PATH')",
    "names in the environment": "exists(available-environment-variables())",
    "a stylesheet": "string(transform(map{'stylesheet-location': 'file:///etc/passwd'})?output)",
    "an entity": "parse-xml(\"<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/hostname'>]><a>&amp;b;</a>\")//text()",
    "a DTD": "exists(parse-xml(\"<!DOCTYPE a SYSTEM 'file:///etc/hostname'><a/>\"))",
    "the working folder": "not(static-base-uri() = 'heliograph:query')",
}


STYLESHEET = (
    "<xsl:stylesheet version='3.0' xmlns:xsl='http://www.w3.org/1999/XSL/Transform'>"
    "<xsl:template match='/'><a>1</a></xsl:template></xsl:stylesheet>"
)
STYLED = f"(map{{'stylesheet-text': \"{STYLESHEET}\", 'source-node': document{{<x/>}}}})?output = '1'"
TRANSFORMS = {
    "by its name": f"transform{STYLED}",
    "with a prefix": f"fn:transform{STYLED}",
    "with another prefix": f"declare namespace f='http://www.w3.org/2005/xpath-functions'; f:transform{STYLED}",
    "with its namespace": f"Q{{http://www.w3.org/2005/xpath-functions}}transform{STYLED}",
    "with a comment in between": f"transform (: it :) {STYLED}",
    "as a function item": f"let $f := transform#1 return $f{STYLED}",
    "by a name that is computed": f"function-lookup(xs:QName(concat('fn:trans', 'form')), 1){STYLED}",
    "in a module": "exists(load-xquery-module('http://127.0.0.1:1/'))",
}


@pytest.mark.req("O6")
@pytest.mark.parametrize("query", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_a_query_cannot_run_a_stylesheet(process: QueryProcess, query: str) -> None:
    sifted = sift(process, query)
    assert sifted.numbers == ()
    assert "is not available" in sifted.problem


def test_an_element_or_text_may_be_called_like_a_refused_function(process: QueryProcess) -> None:
    documents = (b"<a transform='1'><transform>function-lookup</transform></a>",)
    query = "/a/transform = 'function-lookup' and /a/@transform = 1 and exists(//my-transform) = false()"
    assert sift(process, query, documents) == Sifted((0,))


@pytest.mark.req("O6")
@pytest.mark.parametrize("query", NOWHERE.values(), ids=NOWHERE.keys())
def test_a_query_reaches_nothing_outside(process: QueryProcess, query: str) -> None:
    assert sift(process, query).numbers == ()


@pytest.mark.parametrize(
    "query",
    [
        "import module namespace x = 'x' at 'file:///etc/passwd'; true()",
        "declare namespace s = 'java:java.lang.System'; exists(s:getProperty('user.home'))",
    ],
)
def test_modules_and_external_functions_are_off(process: QueryProcess, query: str) -> None:
    assert sift(process, query).numbers == ()


ENDLESS = {
    "an endless loop": ("declare function local:f($n) { local:f($n + 1) }; local:f(1)", 300),
    "a cubic join": ("count(for $a in 1 to 100000, $b in 1 to 100000, $c in 1 to 100000 return $a + $b + $c) > 0", 300),
    "elements that fill memory": ("count(reverse(for $i in 1 to 1000000000 return <a>{$i}</a>))", 5_000),
    "a text that fills memory": (
        "string-length(string-join(for $i in 1 to 1000000000 return 'aaaaaaaaaaaaaaaa'))",
        5_000,
    ),
}


@pytest.mark.req("O6")
@pytest.mark.parametrize(("query", "time_ms"), ENDLESS.values(), ids=ENDLESS.keys())
def test_a_query_without_end_or_bounds_is_killed_and_the_next_one_is_served(query: str, time_ms: int) -> None:
    process = QueryProcess()
    try:
        with pytest.raises(ProtocolError) as told:
            process.sift(SiftDocuments(query, DOCUMENTS, time_ms))
        assert told.value.reason is Reason.QUERY_OVER_TIME
        assert sift(process, "/hall/floor = 1") == Sifted((1,))
    finally:
        process.close()


def test_a_document_that_saxon_does_not_take_is_left_out_alone(process: QueryProcess) -> None:
    documents = (b"<a/>", b"<?xml version='1.0' encoding='utf-8'?><a/>", b"<x:a/>", b"no XML", b"<a><b></a>", b"<a/>")
    assert sift(process, "/a", documents) == Sifted((0, 1, 5))
