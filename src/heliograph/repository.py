"""The repository of a topic directory: what its machine may ask of it, and what it is told.

In:    nothing; these are values.
Out:   Repository (declared by a machine's owner), entries and changes, questions and their answers; three jobs.
State: none.
Not here: back ends (live/vaults/), the simulated twin (sim/repositories.py), what a question means
          (discovery/topics/queries.py), vaults (vault.py), which have neither full text nor properties.

A machine changes and asks its repository by jobs, which the driver carries out on what it opened, in the order in which
they were asked for. A change is durable when ``done`` comes. A question is answered a slice at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heliograph.errors import Reason

Scalar = str | int | float | bool
CHANGES_AT_ONCE_MAX = 1_024
SLICE_ROWS = 20_000  # that one slice looks at: about 50 ms of the slowest language
EVERYBODY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The repository that a machine is to have."""

    name: str  # letters, digits, "-" and "_": a file or schema is called after it
    place: str = ""  # a folder, or postgresql://…; the simulated world has its own places


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    """One topic advertisement as it is kept: what is searched, and the record that answers carry."""

    id: bytes  # the topic's UUID
    owner: str
    institution: str = ""
    space: str = ""
    path: str = ""
    created_ms: int
    issued_ms: int
    expires_ms: int
    readers: tuple[str, ...] = (EVERYBODY,)  # who may find it, beside its owner
    words: str = ""  # for full text: lower-case words with one space between them
    joined: str = ""  # for regular expressions: everything that describes it, a line each
    properties: Mapping[str, Scalar] = field(default_factory=dict)
    document: bytes = b""  # XML, or empty
    record: bytes = field(default=b"", repr=False)  # the signed advertisement


@dataclass(frozen=True, slots=True)
class KeepTopics:
    """A job: keep these entries, in place of older ones of the same topics, and forget others: KeptTopics."""

    entries: tuple[TopicEntry, ...] = ()
    forgotten: tuple[tuple[bytes, str], ...] = ()  # topics and who says so: only an owner is heard
    expired_ms: int = 0  # forget also what expired at or before this, CHANGES_AT_ONCE_MAX at most; 0: nothing
    topics_max: int = 1 << 62
    per_owner_max: int = 1 << 62

    def run(self) -> Any:
        """The driver knows where the repository is."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class KeptTopics:
    """``done`` of KeepTopics."""

    topics: int  # in the repository
    outcomes: tuple[str | Reason, ...] = ()  # per entry: "appeared", "changed", or why it is not kept
    forgotten: tuple[TopicEntry, ...] = ()  # by their owners, or because they had expired


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQuestion:
    """What is looked for. Fields at their default ask for nothing."""

    language: str = ""  # "", "string", "keywords", "regex", "sql", "predicates", "xpath", "xquery", "tags", "integer"
    text: str = ""
    asker: str = ""  # entries are found by their owner and by readers only
    granted: tuple[bytes, ...] = ()  # topics that grants let the asker find besides
    owner: str = ""
    institution: str = ""
    space: str = ""  # this one, and those below it
    ids: tuple[bytes, ...] = ()  # these topics only
    created_from_ms: int = 0
    created_until_ms: int = 0
    expires_from_ms: int = 0  # at least the present: what has expired is never found
    expires_until_ms: int = 0
    newest_first: bool = False
    sees_all: bool = False  # whoever runs the directory sees everything


@dataclass(frozen=True, slots=True)
class AskTopics:
    """A job: the next slice of an answer. Answered by FoundTopics; its failure has a Reason."""

    question: TopicQuestion
    after: int = 0  # ``next`` of the slice before
    count: int = 100  # entries at most
    rows: int = SLICE_ROWS  # to look at, at most

    def run(self) -> Any:
        """The driver knows where the repository is."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class FoundTopics:
    """``done`` of AskTopics."""

    entries: tuple[TopicEntry, ...]
    next: int | None  # ask again after this; None: there is no more
    looked_at: int = 0
    damaged: tuple[bytes, ...] = ()  # topics whose record cannot be read


@dataclass(frozen=True, slots=True)
class RepositoryOpened:
    """Told to a machine: the repository can be used."""

    topics: int
    damaged: int  # entries that were quarantined


@dataclass(frozen=True, slots=True)
class RepositoryFailed:
    """Told to a machine: the repository cannot be used, for this reason."""

    reason: Reason
    problem: str


@dataclass(frozen=True, slots=True)
class SiftDocuments:
    """A job: for which of these XML documents does an XQuery hold? Answered by Sifted.

    The query is a stranger's: the driver runs it in a process of its own, which it kills when ``limit_ms`` are over.
    ``failed`` says QUERY_OVER_TIME then, and QUERY_LANGUAGE_MISSING where there is no XQuery.
    """

    query: str
    documents: tuple[bytes, ...]
    limit_ms: int

    def run(self) -> Any:
        """The driver has the process."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Sifted:
    """``done`` of SiftDocuments."""

    numbers: tuple[int, ...] = ()  # of the documents, in order
    problem: str = ""  # what is wrong with the query


RepositoryJob = KeepTopics | AskTopics
