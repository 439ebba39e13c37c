"""The repository of a topic directory: the requests of the directory's machine, and the answers.

In:    nothing; these are values.
Out:   Repository (declared by a machine's owner), entries and changes, questions and their answers; three jobs.
State: none.
Not here: back ends (live/vaults/), the simulated twin (sim/repositories.py), what a question means
          (discovery/topics/queries.py), vaults (vault.py), which have neither full text nor properties.

A machine changes and queries its repository by jobs, which the driver carries out on the repository that it opened, in
the order in which they were requested. A change is durable when ``done`` comes. A question is answered a slice at a
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from heliograph.errors import Reason

Scalar = str | int | float | bool
CHANGES_AT_ONCE_MAX = 1_024
SLICE_ROWS = 20_000  # examined by one slice: about 50 ms with the slowest language
EVERYBODY = "*"
ID_VERSION = 8  # of the UUIDs of topics (discovery/topics/listing.py)


class Repository(Struct, frozen=True, kw_only=True):
    """The repository of a machine."""

    name: str  # letters, digits, "-" and "_": a file or schema is named after it
    place: str = ""  # a folder, or postgresql://…; the simulated world has its own places


class TopicEntry(Struct, frozen=True, kw_only=True):
    """One topic advertisement as it is stored: the fields that are searched, and the record for answers."""

    id: bytes  # the topic's UUID
    owner: str
    institution: str = ""
    space: str = ""
    path: str = ""
    created_ms: int
    issued_ms: int
    expires_ms: int
    readers: tuple[str, ...] = (EVERYBODY,)  # entities that may find it, besides its owner
    words: str = ""  # for full text: lower-case words with one space between them
    joined: str = ""  # for regular expressions: everything that describes it, one item per line
    properties: Mapping[str, Scalar] = field(default_factory=dict)
    document: bytes = b""  # XML, or empty
    record: bytes = b""  # the signed advertisement


class KeepTopics(Struct, frozen=True):
    """A job: store these entries, replacing older ones of the same topics, and remove others. Result: KeptTopics."""

    entries: tuple[TopicEntry, ...] = ()
    forgotten: tuple[tuple[bytes, str], ...] = ()  # topics and the entities that ask for it: only owners may
    expired_ms: int = 0  # also remove what expired at or before this, at most CHANGES_AT_ONCE_MAX; 0: nothing
    outdated: bool = False  # also remove topics whose UUID is of another version, at most CHANGES_AT_ONCE_MAX
    topics_max: int = 1 << 62
    per_owner_max: int = 1 << 62

    def run(self) -> Any:
        """The driver knows where the repository is."""
        raise NotImplementedError


class KeptTopics(Struct, frozen=True):
    """The result of KeepTopics."""

    topics: int  # in the repository
    outcomes: tuple[str | Reason, ...] = ()  # per entry: "appeared", "changed", or why it was not stored
    forgotten: tuple[TopicEntry, ...] = ()  # removed by their owners, or because they had expired or are outdated


class TopicQuestion(Struct, frozen=True, kw_only=True):
    """What is searched for. Fields at their default restrict nothing."""

    language: str = ""  # "", "string", "keywords", "regex", "sql", "predicates", "xpath", "xquery", "tags", "integer"
    text: str = ""
    asker: str = ""  # only owners and readers find entries
    granted: tuple[bytes, ...] = ()  # more topics, which grants let the requester find
    owner: str = ""
    institution: str = ""
    space: str = ""  # this space and those below it
    ids: tuple[bytes, ...] = ()  # these topics only
    created_from_ms: int = 0
    created_until_ms: int = 0
    expires_from_ms: int = 0  # not earlier than now: expired entries are never found
    expires_until_ms: int = 0
    newest_first: bool = False
    sees_all: bool = False  # for administrators of the directory


class AskTopics(Struct, frozen=True):
    """A job: find the next slice of an answer. Result: FoundTopics, or failure with a Reason."""

    question: TopicQuestion
    after: int = 0  # ``next`` of the previous slice
    count: int = 100  # entries at most
    rows: int = SLICE_ROWS  # to examine at most

    def run(self) -> Any:
        """The driver knows where the repository is."""
        raise NotImplementedError


class FoundTopics(Struct, frozen=True):
    """The result of AskTopics."""

    entries: tuple[TopicEntry, ...]
    next: int | None  # ask again after this; None: the answer is complete
    looked_at: int = 0
    damaged: tuple[bytes, ...] = ()  # topics whose record cannot be read


class RepositoryOpened(Struct, frozen=True):
    """Told to a machine: the repository can be used."""

    topics: int
    damaged: int  # entries that were quarantined


class RepositoryFailed(Struct, frozen=True):
    """Told to a machine: the repository cannot be used, for this reason."""

    reason: Reason
    problem: str


class SiftDocuments(Struct, frozen=True):
    """A job: find the XML documents for which an XQuery holds. Result: Sifted.

    The query is untrusted: the driver runs it in a process of its own, which it kills after ``limit_ms``. ``failed``
    has the reason QUERY_OVER_TIME in that case, and QUERY_LANGUAGE_MISSING if XQuery is not installed.
    """

    query: str
    documents: tuple[bytes, ...]
    limit_ms: int

    def run(self) -> Any:
        """The driver runs this job in another process."""
        raise NotImplementedError


class Sifted(Struct, frozen=True):
    """The result of SiftDocuments."""

    numbers: tuple[int, ...] = ()  # of the documents that match, in order
    problem: str = ""  # what is wrong with the query


RepositoryJob = KeepTopics | AskTopics
