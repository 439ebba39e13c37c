"""Notes: what a machine observed. All kinds are here; observe/ turns them into log lines and counters.

In:    nothing.
Out:   frozen structs, named noun_verb in the past tense.
State: none.
Not here: one note per publication. Traffic is counted in the parts of a machine and shown by ``report``.
"""

from __future__ import annotations

import msgspec

from heliograph.errors import Reason


class Note(msgspec.Struct, frozen=True, tag_field="note"):
    """Base of all notes. ``tag`` is the kind as logs and counters show it."""

    @property
    def level(self) -> str:
        """The level of the log line: "debug", "info", "warning" or "error"."""
        return "info"

    @property
    def repeatable(self) -> Note:
        """The note as it is in every run with the same inputs: without lines of our code."""
        return self


class WorkFailed(Note, frozen=True, tag="work_failed"):
    """What one peer sent raised an exception: a bug of ours, which cost that peer its request or its link."""

    place: str  # of the guard that caught it
    error: str  # its type
    link: int = 0  # of the peer, if it has one …
    entity: str = ""  # … and who it is, if that is known
    repeated: int = 0  # how often the same happened since the last note of it
    traceback: str = ""
    inputs: str = ""  # the last inputs of the node: kind, link or ticket, bytes; only a live driver knows them

    @property
    def level(self) -> str:
        """Somebody must mend it."""
        return "error"

    @property
    def repeatable(self) -> Note:
        """Without the traceback, whose lines and paths differ between versions and machines."""
        return msgspec.structs.replace(self, traceback="", inputs="")


class LinkAttached(Note, frozen=True, tag="link_attached"):
    """A link came up; nothing is known about the peer beyond its address."""

    link: int
    transport: str
    address: str

    @property
    def level(self) -> str:
        """Every dial of a scanner makes one; not worth a line by default."""
        return "debug"


class SessionWelcomed(Note, frozen=True, tag="session_welcomed"):
    """A client finished its handshake."""

    link: int
    entity: str
    proof: str
    name: str


class LinkDetached(Note, frozen=True, tag="link_detached"):
    """A link ended: by either side, or by accident."""

    link: int
    entity: str
    reason: Reason


class PeerRefused(Note, frozen=True, tag="peer_refused"):
    """A peer broke a rule and lost its link."""

    link: int
    reason: Reason
    detail: str

    @property
    def level(self) -> str:
        """The operator may want to know which peer it was."""
        return "warning"


class ActionDenied(Note, frozen=True, tag="action_denied"):
    """A peer tried something that it may not do; it keeps its link."""

    link: int
    entity: str
    reason: Reason
    subject: str

    @property
    def level(self) -> str:
        """Either a rule worked, or it is wrong."""
        return "warning"


class PublicationRefused(Note, frozen=True, tag="publication_refused"):
    """A publication inside a valid frame was malformed; it was discarded and counted."""

    link: int
    reason: Reason
    detail: str

    @property
    def level(self) -> str:
        """The publisher was told; the operator may want to know too."""
        return "warning"


class PublicationsDropped(Note, frozen=True, tag="publications_dropped"):
    """A slow consumer lost publications (at most one note per link and second, and one when its link ends), a link
    ended while publications waited for it, or it ended with too many publications of its own unprocessed."""

    link: int
    entity: str
    frames: int
    bytes: int
    why: str  # "queue_full", "unprocessed", or the reason for which the link ended

    @property
    def level(self) -> str:
        """A consumer loses data, in accordance with its policy."""
        return "warning"


class PublisherHeld(Note, frozen=True, tag="publisher_held"):
    """A publisher that opted in waits for a slow consumer (or no longer does)."""

    link: int
    held: bool

    @property
    def level(self) -> str:
        """Frequent under load, and harmless."""
        return "debug"


class OriginsForgotten(Note, frozen=True, tag="origins_forgotten"):
    """The duplicate table was full: origins were forgotten before their horizon."""

    count: int

    @property
    def level(self) -> str:
        """The stated horizon was not kept."""
        return "warning"


class DrainStarted(Note, frozen=True, tag="drain_started"):
    """The broker accepts no new links and asks its clients to leave."""

    links: int


class DrainEnded(Note, frozen=True, tag="drain_ended"):
    """The broker has no more links, or the grace period is over."""

    links: int


class SheddingStarted(Note, frozen=True, tag="shedding_started"):
    """The broker is overloaded and asks some of its clients to move."""

    cpu_permille: int
    links_permille: int

    @property
    def level(self) -> str:
        """There should be more brokers, or fewer clients."""
        return "warning"


class SheddingEnded(Note, frozen=True, tag="shedding_ended"):
    """The broker is no longer overloaded."""

    asked: int  # clients asked to move since the broker started


class SettingsReloaded(Note, frozen=True, tag="settings_reloaded"):
    """Rules, tokens, limits and links were replaced while running."""

    rules: int
    tokens: int
    restart: list[str] = []  # settings that changed but need a restart
    taken: list[str] = []  # settings that changed and are in force now


class DirectoryReloaded(Note, frozen=True, tag="directory_reloaded"):
    """A directory's filters, links and limits were replaced while running."""

    brokers: int  # that it still lists
    restart: list[str] = []  # settings that changed but need a restart


class ReloadFailed(Note, frozen=True, tag="reload_failed"):
    """The new settings were refused; the old ones stay in force."""

    problems: list[str]

    @property
    def level(self) -> str:
        """An operator may believe that new settings are in force."""
        return "error"


class ServiceLost(Note, frozen=True, tag="service_lost"):
    """A service's pipe ended."""

    service: str

    @property
    def level(self) -> str:
        """Requests to it are refused from now on."""
        return "warning"


class NeighbourLinked(Note, frozen=True, tag="neighbour_linked"):
    """A link to another broker is up, and both sides are proven."""

    link: int
    broker: str
    cluster: str


class NeighbourLost(Note, frozen=True, tag="neighbour_lost"):
    """A link to another broker is gone; this many parcels were sent another way."""

    broker: str
    replanned: int

    @property
    def level(self) -> str:
        """Other paths are used; the operator may want to know."""
        return "warning"


class ChangeoverCut(Note, frozen=True, tag="changeover_cut"):
    """Paths changed before the old ones were known to be empty: publications that are overtaken are counted."""

    why: str  # timed_out: no answer came; overflowed: too much was held back
    destinations: int
    held: int  # runs that were held back until then

    @property
    def level(self) -> str:
        """Nothing is lost."""
        return "warning"


class NeighbourSuspected(Note, frozen=True, tag="neighbour_suspected"):
    """A neighbour has been silent for a while: other paths are used."""

    broker: str

    @property
    def level(self) -> str:
        """The neighbour may be pausing, or gone."""
        return "warning"


class NeighbourRelieved(Note, frozen=True, tag="neighbour_relieved"):
    """A suspected neighbour was heard again."""

    broker: str


class BrokersLost(Note, frozen=True, tag="brokers_lost"):
    """There is no path to these brokers any more: the network is partitioned, or they stopped."""

    brokers: list[str]

    @property
    def level(self) -> str:
        """An operator should look into a partition."""
        return "warning"


class BrokersReached(Note, frozen=True, tag="brokers_reached"):
    """There is a path to these brokers again."""

    brokers: list[str]


class SlotChanged(Note, frozen=True, tag="slot_changed"):
    """Two brokers claimed a slot of the cluster; the older keeps it, and this one took another."""

    old: int
    new: int


class NameContested(Note, frozen=True, tag="name_contested"):
    """Others repeatedly have newer records under this broker's name: another broker has its name, or forges records."""

    broker: str

    @property
    def level(self) -> str:
        """Neither of two brokers with the same name is reliable."""
        return "warning"


class ReferenceChanged(Note, frozen=True, tag="reference_changed"):
    """Network time follows another clock from now on: "UTC", or that of a broker, by its id."""

    reference: str
    stratum: int


class SocketRefused(Note, frozen=True, tag="socket_refused"):
    """A datagram socket could not be opened, or its group not joined; the node runs without it."""

    socket: str
    address: str
    problem: str
    reason: Reason = Reason.SOCKET_FAILED

    @property
    def level(self) -> str:
        """Something cannot be received; everything else works."""
        return "warning"


class TopicDirectoryOpened(Note, frozen=True, tag="topic_directory_opened"):
    """A topic directory has opened its repository: the number of topics, and of unreadable entries put aside."""

    topics: int
    damaged: int = 0


class TopicsOutdated(Note, frozen=True, tag="topics_outdated"):
    """Topics whose UUID is not bound to their creator, from an earlier version, were removed from a repository."""

    count: int


class TopicsDamaged(Note, frozen=True, tag="topics_damaged"):
    """Entries of a repository could not be read and were put aside."""

    count: int


class VaultRefused(Note, frozen=True, tag="vault_refused"):
    """A vault could not be opened, or was lost while in use; its machine runs without it until it is back."""

    vault: str
    problem: str
    reason: Reason

    @property
    def level(self) -> str:
        """Nothing can be stored."""
        return "error"


class VaultFound(Note, frozen=True, tag="vault_found"):
    """A vault that was refused before is open now."""

    vault: str


class VaultNarrowed(Note, frozen=True, tag="vault_narrowed"):
    """Others could read the files of a vault; from now on only their owner can."""

    vault: str

    @property
    def level(self) -> str:
        """It may have been read."""
        return "warning"


class StoreOpened(Note, frozen=True, tag="store_opened"):
    """A store has read its vault and serves its patterns."""

    store: str  # its name
    id: str
    first: int
    next: int


class RecordsDamaged(Note, frozen=True, tag="records_damaged"):
    """A store that starts found records at the end of a log that cannot be read. Readers are told of the gap."""

    store: str
    log: str
    position: int
    count: int
    problem: str

    @property
    def level(self) -> str:
        """Data is lost; everything else works."""
        return "warning"


class StoreFailed(Note, frozen=True, tag="store_failed"):
    """A store accepts nothing for now; publishers are told, and wait."""

    store: str
    reason: Reason
    problem: str

    @property
    def level(self) -> str:
        """An operator has to look into it."""
        return "warning"


class DatagramsUnsent(Note, frozen=True, tag="datagrams_unsent"):
    """Datagrams could not be sent; at most one note per machine, reason and second."""

    socket: str
    datagrams: int
    reason: Reason
    problem: str

    @property
    def level(self) -> str:
        """Datagrams may always get lost, but these were not even sent."""
        return "warning"


class DialFailed(Note, frozen=True, tag="dial_failed"):
    """A client, or a broker that keeps a link there, could not reach a broker; it tries again."""

    address: str
    reason: Reason
    retry_ms: int
    detail: str = ""

    @property
    def level(self) -> str:
        """Retried, so not an error yet."""
        return "warning"


class SessionRestored(Note, frozen=True, tag="session_restored"):
    """A client has a broker again, with all its subscriptions in force."""

    address: str
    subscriptions: int
    repeated: int


class SessionRoamed(Note, frozen=True, tag="session_roamed"):
    """A client moved from a draining broker to another one, with nothing lost or repeated."""

    old: str
    new: str


class PublicationsLost(Note, frozen=True, tag="publications_lost"):
    """Publications were dropped: by a client, because they were not read, or because no broker accepted them; or by
    its broker, because the client's link was too slow."""

    frames: int
    where: str  # "inbox": a subscription that is not read; "outgoing": no broker for too long; "broker": told by one

    @property
    def level(self) -> str:
        """The program loses data."""
        return "warning"


class AcknowledgementsLost(Note, frozen=True, tag="acknowledgements_lost"):
    """A durable subscription ended with more gaps between acknowledged publications than its store keeps."""

    store: str
    name: str
    count: int  # publications that were acknowledged and will be delivered again

    @property
    def level(self) -> str:
        """The program gets publications again that it has dealt with."""
        return "warning"


class PositionsLost(Note, frozen=True, tag="positions_lost"):
    """A store cannot deliver some of its log to a client: the records are damaged, or no longer kept."""

    store: str
    first: int
    end: int  # the first position after them
    reason: Reason

    @property
    def level(self) -> str:
        """The program misses data."""
        return "warning"
