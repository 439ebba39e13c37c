"""Documents: the only file that uses lxml, for XML from untrusted publishers.

In:    bytes of a payload or header; path expressions that xpath_grammar.py has checked.
Out:   read_document() → a Document, or a text that says why there is none; compile_path() → an evaluator.
State: the names that libxml2 has met on our own thread: it keeps them as long as the thread runs, so their number is
       bounded.
Not here: which expressions are allowed (xpath_grammar.py), what is compared with what (xpath_values.py).

Expat checks a document before libxml2 builds it: no document type (so no entities and nothing external), a bounded
number of nodes and levels. Only UTF-8 is read; comments, processing instructions and blank text between elements are
left out. lxml has one dictionary of names per thread. If there is no room left for the new names of a document, it is
parsed in a thread of its own, and its names are freed with that thread. So publishers can only make their own documents
slower.
"""

from __future__ import annotations

import re
from typing import Any
from xml.parsers import expat

from lxml import etree  # type: ignore[import-untyped]

from heliograph.apart import run_apart
from heliograph.matching.languages.xpath_values import CANDIDATES_MAX, Candidates, Evaluate, Values

BYTES_MAX = 1 << 16
NODES_MAX = 4_096  # elements and attributes
DEPTHS = (4, 8, 16, 32)
DEPTH_MAX = DEPTHS[-1]
NAMES_MAX = 1 << 14  # distinct names of elements, attributes and namespaces: 2 MiB, or 21 if they are long
NAME_CHARACTERS_MAX = 256

# libxml2 keeps 16 to 59 blanks between tags in its dictionary, like a name; a line end may have been two characters.
_BLANKS = re.compile(r">([ \t\r\n]{16,118})<")

_names: set[str] = set()  # only asked for membership, never iterated over


class _RefusedError(Exception):
    """The document cannot be accepted."""


class Document:
    """A parsed document. What a path selects in it is computed once."""

    __slots__ = ("_candidates", "_root", "_values", "again", "nodes")

    def __init__(self, root: Any, nodes: int, depth: int) -> None:
        self._root = root
        self._values: dict[str, Values] = {}
        self._candidates: dict[str, Candidates | None] = {}
        self.nodes = nodes
        self.again = max(depth, nodes // 64)  # the cost per node of a step that meets nodes repeatedly

    def values(self, path: str, evaluate: Evaluate) -> Values:
        """What a path selects; ``path`` is its text, by which the answer is cached."""
        found = self._values.get(path)
        if found is None:
            found = self._values[path] = Values(evaluate(self._root), _text)
        return found

    def candidates(self, path: str, evaluate: Evaluate) -> Candidates | None:
        """The nodes of a path, as candidates for predicates; None if there are too many to test one by one."""
        if path not in self._candidates:
            nodes = evaluate(self._root)
            self._candidates[path] = Candidates(nodes, _text) if len(nodes) <= CANDIDATES_MAX else None
        return self._candidates[path]

    def holds(self, evaluate: Evaluate) -> bool:
        """The boolean value of a whole expression; an expression that fails is false."""
        try:
            return evaluate(self._root) is True
        except etree.XPathError:
            return False


def read_document(data: bytes) -> Document | str:
    """The document in these bytes, or why there is none."""
    if len(data) > BYTES_MAX:
        return f"{len(data)} bytes, at most {BYTES_MAX} are read"
    try:
        text = data.decode()
        if "\0" in text:  # so that both parsers read the same characters, whatever the document declares
            return "not XML in UTF-8: it has zero bytes"
        survey = _Survey(data)
        survey.names |= {blanks: None for blanks in _BLANKS.findall(text) if blanks not in _names}
        if _keep(survey.names):
            root = etree.fromstring(data, _PARSER)
        else:
            root = run_apart(lambda: etree.fromstring(data, _parser()))
        return Document(root, survey.nodes, _depth(root))
    except _RefusedError as error:
        return str(error)
    except (expat.ExpatError, etree.XMLSyntaxError, ValueError) as error:
        return f"not XML in UTF-8: {error}"
    except RuntimeError as error:
        return f"names beyond the {NAMES_MAX} that are kept, and {error}"


def compile_path(expression: str, namespaces: dict[str, str]) -> Evaluate:
    """An evaluator for an expression; ValueError if libxml2 refuses it."""
    try:
        evaluate: Evaluate = etree.XPath(expression, namespaces=namespaces or None, regexp=False, smart_strings=False)
        evaluate(_EMPTY)  # only this finds prefixes without a namespace
    except etree.XPathError as error:
        raise ValueError(str(error)) from None
    return evaluate


def _keep(names: dict[str, None]) -> bool:
    """Keep these new names, if there is room for all of them."""
    if len(_names) + len(names) > NAMES_MAX:
        return False
    _names.update(names)
    return True


def _parser() -> Any:
    return etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        collect_ids=False,
        remove_comments=True,
        remove_pis=True,
        remove_blank_text=True,
    )


class _Survey:
    """Counts the nodes, levels and names of a document before it is built."""

    def __init__(self, data: bytes) -> None:
        self.nodes = 0
        self.names: dict[str, None] = {}  # names that are not kept yet
        reader = expat.ParserCreate("utf-8")
        reader.ordered_attributes = True
        reader.StartDoctypeDeclHandler = self._doctype
        reader.StartElementHandler = self._start
        reader.ProcessingInstructionHandler = self._instruction
        reader.Parse(data, True)

    def _start(self, name: str, attributes: list[str]) -> None:
        if name not in _names:
            self._name(name)
        for attribute, value in zip(attributes[::2], attributes[1::2], strict=True):
            if attribute not in _names:
                self._name(attribute)
            if attribute.startswith("xmlns"):
                self._name(value)
        self.nodes += 1 + len(attributes) // 2
        if self.nodes > NODES_MAX:
            raise _RefusedError(f"more than {NODES_MAX} nodes")

    def _instruction(self, target: str, data: str) -> None:
        self._name(target)

    def _doctype(self, *declaration: Any) -> None:
        raise _RefusedError("it has a document type, and those are not read")

    def _name(self, name: str) -> None:
        if name not in _names:
            if len(name) > NAME_CHARACTERS_MAX:
                raise _RefusedError(f"a name of more than {NAME_CHARACTERS_MAX} characters")
            self.names[name] = None


def _text(element: Any) -> str:
    """The string value of an element."""
    if len(element) == 0:
        return element.text or ""
    text: str = etree.tostring(element, method="text", encoding="unicode", with_tail=False)
    return text


def _depth(root: Any) -> int:
    """How many levels a document has, rounded up to one of DEPTHS."""
    for depth, has_more in _DEEPER:
        if not has_more(root):
            return depth
    raise _RefusedError(f"deeper than {DEPTH_MAX} levels")


_PARSER = _parser()  # making one takes as long as parsing a small document
_EMPTY = etree.Element("empty")
_DEEPER = [(depth, etree.XPath(f"boolean({'/*' * (depth + 1)})")) for depth in DEPTHS]
