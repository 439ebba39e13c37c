"""The program of the XQuery process: reads documents, and returns the numbers of those for which a query is true.

In:    requests on standard input: u32 length, a MessagePack map with a query and XML documents.
Out:   answers on standard output in the same form: numbers, or what is wrong with the query.
State: Saxon, and the last composed query.
Not here: starting and killing this process (xquery.py). Nothing of Heliograph is imported: this runs untrusted text.

The process has no environment, an empty working folder, no protocols, no external functions, and limits on memory, CPU
time and files. One run tests many documents: the query becomes the body of a loop over them. That is sound because the
query was first compiled by itself. A query with a prolog is split after one of its last semicolons.

Saxon cannot be told to leave single functions out, so a query that names ``transform``, which would run XSLT, is
refused before it is compiled. Names cannot be written in another way in XQuery; only ``function-lookup`` and
``load-xquery-module`` find functions by a name that is computed, so they are refused too.
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Sequence
from struct import Struct
from typing import Any

import msgspec

MEMORY_BYTES_MAX = 1 << 29
CPU_S_MAX = 60  # of one request, in case the process that should kill us is gone
FILES_MAX = 16
DIVISIONS_MAX = 16  # semicolons after which a prolog may end
TEXT_MAX = 300
LENGTH = Struct("<I")

_FEATURE = "http://saxon.sf.net/feature/"
_BASE = "heliograph:query"  # instead of the working folder
_XML_DECLARATION = re.compile(r"\A\s*<\?xml\s[^>]*\?>")
_STATIC = re.compile(r"\bX[PQ]ST\d{4}\b")
_REFUSED = re.compile(r"(?<![\w.-])(transform|function-lookup|load-xquery-module)\s*[(#]")  # "(" begins comments too
_LOOP = (
    "string-join(for $heliograph in /b/d return if (try { boolean(document { $heliograph/node() } ! (\n",
    "\n)) } catch * { false() }) then $heliograph/@n else (), ' ')",
)


class QueryError(Exception):
    """The query is not valid."""


class Sieve:
    """Saxon without access to anything outside."""

    def __init__(self) -> None:
        from saxonche import PySaxonApiError, PySaxonProcessor

        self._error: type[Exception] = PySaxonApiError
        self._saxon = PySaxonProcessor(license=False)
        self._saxon.set_configuration_property(_FEATURE + "allowedProtocols", "")
        self._saxon.set_configuration_property(_FEATURE + "allow-external-functions", "off")
        self._nothing = self._saxon.parse_xml(xml_text="<b/>")
        self._last = ("", "")

    def sift(self, query: str, documents: Sequence[str]) -> list[int]:
        """The numbers of the documents for which the query's effective boolean value is true; errors count as false."""
        module = self._compose(query)
        try:
            return [int(number) for number in str(self._run(module, self._parse(list(enumerate(documents))))).split()]
        except self._error as error:
            raise QueryError(_told(error)) from None

    def _compose(self, query: str) -> str:
        """The query as a loop over documents. QueryError if it is not a valid query by itself."""
        if self._last[0] == query:
            return self._last[1]
        if named := _REFUSED.search(query):
            raise QueryError(f"the function {named[1]} is not available")
        try:
            self._run(query, self._nothing)
        except self._error as error:
            if _STATIC.search(str(error)):
                raise QueryError(_told(error)) from None
        ends = [0, *(found.end() for found in re.finditer(";", query))]
        for end in reversed(ends[-DIVISIONS_MAX:]):
            module = query[:end] + query[end:].join(_LOOP)
            try:
                self._run(module, self._nothing)
            except self._error as error:
                problem = _told(error)
            else:
                self._last = (query, module)
                return module
        raise QueryError(problem)

    def _parse(self, numbered: list[tuple[int, str]]) -> Any:
        """All documents as one; if Saxon rejects some of them, these are found by bisection and left out."""
        try:
            return self._saxon.parse_xml(xml_text=_joined(numbered))
        except self._error:
            return self._saxon.parse_xml(xml_text=_joined(self._good(numbered)))

    def _good(self, numbered: list[tuple[int, str]]) -> list[tuple[int, str]]:
        try:
            self._saxon.parse_xml(xml_text=_joined(numbered))
        except self._error:
            half = len(numbered) // 2
            return self._good(numbered[:half]) + self._good(numbered[half:]) if half else []
        return numbered

    def _run(self, module: str, document: Any) -> Any:
        processor = self._saxon.new_xquery_processor()
        processor.set_query_base_uri(_BASE)
        processor.set_query_content(module)
        processor.set_context(xdm_item=document)
        return processor.run_query_to_value()


def _joined(numbered: list[tuple[int, str]]) -> str:
    return "<b>" + "".join(f"<d n='{number}'>{_without_head(text)}</d>" for number, text in numbered) + "</b>"


def _without_head(text: str) -> str:
    """Without an XML declaration, which only a whole document may have."""
    return _XML_DECLARATION.sub("", text, count=1) if "<?xml" in text[:64] else text


def _told(error: Exception) -> str:
    return " ".join(str(error).split())[:TEXT_MAX]


def _confine() -> None:
    """Set the limits of the process, after everything is loaded."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _allow_cpu() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime) + CPU_S_MAX
    resource.setrlimit(resource.RLIMIT_CPU, (until, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def main() -> None:
    """Answer requests until standard input ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer

    def answer(said: dict[str, Any]) -> None:
        data = msgspec.msgpack.encode(said)
        answers.write(LENGTH.pack(len(data)) + data)
        answers.flush()

    sieve = Sieve()
    sieve.sift("true()", ["<a/>"])  # warms up what is slow the first time
    _confine()
    answer({"ready": True})
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        said = msgspec.msgpack.decode(requests.read(LENGTH.unpack(head)[0]))
        _allow_cpu()
        try:
            answer({"numbers": sieve.sift(said["query"], said["documents"])})
        except QueryError as problem:
            answer({"invalid": str(problem)})


if __name__ == "__main__":
    main()
