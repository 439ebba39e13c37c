"""Queries: the conditions that an entry of a repository must meet to be found.

In:    a query as sent; entries.
Out:   TopicQuestion for a repository; Matcher: the exact test of one entry, which every back end uses.
State: none.
Not here: databases (live/vaults/), the languages (matching/languages/).
Paper: [topics] §6.

An advertisement is read as an event: its path is the topic, its properties are the headers, its XML document is the
payload. So SQL, predicates, tags, integers and XPath are the languages of subscriptions, with their limits. A string
matches if its words follow each other, keywords if all of them occur; a regular expression is applied to everything
that describes a topic. For XQuery a repository only finds the entries with a document; a separate process filters them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from heliograph.discovery.topics.listing import NUL, Descriptors, TopicAdvertisement
from heliograph.errors import ProtocolError, Reason
from heliograph.matching.condition import Condition, Event
from heliograph.repository import EVERYBODY, TopicEntry, TopicQuestion

if TYPE_CHECKING:
    from heliograph.discovery.topics.messages import TopicQuery

CONDITIONS = ("sql", "predicates", "xpath", "tags", "integer")
XQUERY = "xquery"
QUERY_LANGUAGES = ("", "string", "keywords", "regex", *CONDITIONS, XQUERY)
WORDS_MAX = 64
JOINED_BYTES_MAX = 1 << 17

_WORD = re.compile(r"[^\W_]+")
Test = Callable[[TopicEntry], bool]


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case, as the full-text search uses them."""
    return _WORD.findall(text.casefold())


def question_of(query: TopicQuery, asker: str, wall_ms: int, granted: tuple[bytes, ...] = ()) -> TopicQuestion:
    """The query to a repository for a query of this entity; ProtocolError if the query is invalid."""
    question = TopicQuestion(
        language=query.language,
        text=query.text,
        asker=asker,
        granted=granted,
        owner=query.owner,
        institution=query.institution,
        space=query.space,
        ids=tuple(query.topics),
        created_from_ms=query.created_from_ms,
        created_until_ms=query.created_until_ms,
        expires_from_ms=wall_ms + max(1, query.valid_for_ms),
        expires_until_ms=query.expires_until_ms,
        newest_first=query.newest_first,
    )
    Matcher(question)
    return question


def is_asked_for(query: TopicQuery, advertisement: TopicAdvertisement) -> bool:
    """True if owner, space, id and times of a found topic are those of the query. The directory tested the rest."""
    creation = advertisement.creation
    entry = TopicEntry(
        id=advertisement.id,
        owner=advertisement.creator,
        institution=creation.institution,
        space=creation.space,
        created_ms=advertisement.created_ms,
        issued_ms=advertisement.issued_ms,
        expires_ms=advertisement.expires_ms,
    )
    return _fits(query, query.topics, entry)


def _fits(asked: TopicQuery | TopicQuestion, ids: Sequence[bytes], entry: TopicEntry) -> bool:
    if ids and entry.id not in ids:
        return False
    if asked.owner and entry.owner != asked.owner:
        return False
    if asked.institution and entry.institution != asked.institution:
        return False
    if asked.space and entry.space != asked.space and not entry.space.startswith(asked.space + "/"):
        return False
    if entry.created_ms < asked.created_from_ms:
        return False
    if asked.created_until_ms and entry.created_ms > asked.created_until_ms:
        return False
    return not asked.expires_until_ms or entry.expires_ms <= asked.expires_until_ms


def entry_of(advertisement: TopicAdvertisement, record: bytes) -> TopicEntry:
    """An advertisement as a repository keeps it."""
    said = advertisement.creation.descriptors
    return TopicEntry(
        id=advertisement.id,
        owner=advertisement.creator,
        institution=advertisement.creation.institution,
        space=advertisement.creation.space,
        path=said.path,
        created_ms=advertisement.created_ms,
        issued_ms=advertisement.issued_ms,
        expires_ms=advertisement.expires_ms,
        readers=tuple(advertisement.creation.readers),
        words=" ".join(words_of(" ".join(_texts(said)))),
        joined="\n".join(_texts(said))[:JOINED_BYTES_MAX],
        properties=said.properties,
        document=said.document.encode(),
        record=record,
    )


def _texts(said: Descriptors) -> list[str]:
    """Everything that describes a topic, each format on its own lines."""
    found = [said.path, said.text, " ".join(said.keywords)]
    found += [f"{name}={_plain(value)}" for name, value in sorted(said.properties.items())]
    found.append(said.document)
    return [one for one in found if one]


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Matcher:
    """The exact test of a question. ProtocolError(QUERY_INVALID) if the question is invalid."""

    __slots__ = ("_question", "_test")

    def __init__(self, question: TopicQuestion) -> None:
        if any(NUL in text for text in (question.text, question.owner, question.institution, question.space)):
            raise ProtocolError(Reason.QUERY_INVALID, "the query contains the character NUL, which no topic has")
        self._question = question
        self._test = _language(question.language, question.text)

    def matches(self, entry: TopicEntry) -> bool:
        """True if the requester may find this entry."""
        return self.may_see(entry) and self.fits(entry) and self._test(entry)

    def which(self, entries: Sequence[TopicEntry]) -> list[int]:
        """The indexes of entries that pass the language's condition, for back ends that have tested everything else."""
        return [number for number, entry in enumerate(entries) if self._test(entry)]

    def which_events(self, events: Iterable[Event], count: int) -> list[int]:
        """The same for a condition, over entries in the form that subscriptions read; the first ``count`` of them."""
        from heliograph.matching.conditions import alone

        test = alone(_compiled(self._question.language, self._question.text))
        fitting = (number for number, event in enumerate(events) if test(event))
        return list(islice(fitting, count))

    def scan(self, texts: Sequence[str]) -> list[int]:
        """The same for a regular expression, over the descriptions of entries: all of them at once."""
        from heliograph.matching.languages.patterns import scanner  # RE2 takes time to load

        assert self._question.language == "regex"
        return scanner(self._question.text, JOINED_BYTES_MAX)(texts)

    def may_see(self, entry: TopicEntry) -> bool:
        """True if the requester may see this entry at all."""
        asked = self._question
        if asked.sees_all or EVERYBODY in entry.readers or entry.owner == asked.asker:
            return True
        return asked.asker in entry.readers or entry.id in asked.granted

    def fits(self, entry: TopicEntry) -> bool:
        """True if owner, institution, space, id and times meet the conditions."""
        asked = self._question
        return entry.expires_ms >= asked.expires_from_ms and _fits(asked, asked.ids, entry)


def event_of(entry: TopicEntry) -> Event:
    """An entry in the form that the languages of subscriptions read."""
    return Event(entry.path.encode(), msgspec.json.encode(dict(entry.properties)), entry.document)


def _language(language: str, text: str) -> Test:
    if language not in QUERY_LANGUAGES:
        known = ", ".join(one for one in QUERY_LANGUAGES if one)
        raise ProtocolError(Reason.QUERY_INVALID, f"no query language {language[:64]!r}; there are {known}")
    if language == "":
        return lambda entry: True
    if language == XQUERY:
        return lambda entry: bool(entry.document)  # the query itself runs in a separate process: SiftDocuments
    if language in ("string", "keywords"):
        return _full_text(language, text)
    if language == "regex":
        return _expression(text)
    return _condition(language, text)


def _full_text(language: str, text: str) -> Test:
    words = words_of(text)
    if not 1 <= len(words) <= WORDS_MAX:
        raise ProtocolError(Reason.QUERY_INVALID, f"1 to {WORDS_MAX} words are looked for, these are {len(words)}")
    if language == "string":
        phrase = f" {' '.join(words)} "
        return lambda entry: phrase in f" {entry.words} "
    wanted = tuple(dict.fromkeys(f" {word} " for word in words))
    return lambda entry: all(word in f" {entry.words} " for word in wanted)


def _expression(text: str) -> Test:
    from heliograph.matching.languages.patterns import pattern  # RE2 takes time to load

    try:
        search, _ = pattern(text, dot_nl=False, text_bytes_max=JOINED_BYTES_MAX)
    except ValueError as error:
        raise ProtocolError(Reason.QUERY_INVALID, str(error)) from None
    return lambda entry: search(entry.joined)


def _compiled(language: str, text: str) -> Condition:
    from heliograph.matching.languages import condition_of

    try:
        return condition_of(language, text)
    except ProtocolError as error:
        raise ProtocolError(Reason.QUERY_INVALID, error.detail) from None


def _condition(language: str, text: str) -> Test:
    from heliograph.matching.conditions import alone

    test = alone(_compiled(language, text))
    return lambda entry: test(event_of(entry))
