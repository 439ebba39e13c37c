"""Summaries in the vault: readings pass over what does not concern them, and miss nothing."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import Reason
from heliograph.live.vaults.sqlite import SqliteVault
from heliograph.model.topics import matches
from heliograph.stores.summaries import BLOCK_BYTES, PREFIX, end_of
from heliograph.vault import Change, Committed, Delete, Found, KeysRead, Put, Query, Read, ReadKeys, Trim, Vault
from heliograph.wire import stores
from heliograph.wire.frames import Flag, event
from tests.examples import examples
from tests.stores.ledge import INBOX, ORIGIN, Ledge
from tests.stores.test_channel import notices, opened, positions
from tests.vaults.postgres import Server
from tests.vaults.subjects import PostgresSubject

pytestmark = pytest.mark.req("N10")
FILTERS = ("a", "a/#", "a/+/z", "+/y", "c", "many/#", "many/17", "+/#", "#", "nothing/#")
TOPICS = (b"a", b"a/x", b"a/x/z", b"b/y", b"c", b"b/w/y")
MANY = [b"many/%03d/%03d" % (number, number) for number in range(100)]


class Watched:
    """A vault of which is told how much of its log was read."""

    def __init__(self, vault: Any) -> None:
        self._vault = vault
        self.bytes = 0

    def commit(self, changes: tuple[Change, ...]) -> Committed:
        return self._vault.commit([changes])[0] if hasattr(self._vault, "reopen") else self._vault.commit(changes)  # type: ignore[no-any-return]

    def find(self, query: Query) -> Found:
        found: Found = self._vault.read(query) if hasattr(self._vault, "reopen") else self._vault.find(query)
        if isinstance(query, Read):
            self.bytes += sum(len(getattr(run, "data", b"")) for run in found.runs)  # type: ignore[union-attr]
        return found


class SqliteSubject:
    """A file of SQLite."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="heliograph-vault-"))
        self._backend = SqliteVault(Vault(name="v", place=str(self.folder)))
        self._backend.open()
        self.commit, self.read, self.reopen = self._backend.commit, self._backend.read, self._backend.open

    def end(self) -> None:
        self._backend.close()
        shutil.rmtree(self.folder)


def started(vault: Any, **settings: Any) -> Ledge:
    """A store as it is after a start: nothing of its log is in memory."""
    return Ledge(vault, **settings)


def ends(vault: Any) -> list[int]:
    """Where the blocks end that have a summary."""
    found = vault.find(ReadKeys(PREFIX))
    assert isinstance(found, KeysRead)
    return [end_of(key) for key, _ in found.pairs]


def publish(ledge: Ledge, topics: list[bytes], size: int = 0, first: int = 1) -> None:
    ledge.deliver(b"".join(event(topic, bytes(size), ORIGIN, number) for number, topic in enumerate(topics, first)))
    ledge.settle()


def soon(ledge: Ledge, ms: int = 1_000) -> None:
    """Time passes, so that what waits is written."""
    ledge.wait(ms)
    ledge.settle()


def found(ledge: Ledge, pattern: str, **asked: Any) -> list[int]:
    """The positions of what a reading gets."""
    ledge.frames.clear()
    opened(ledge, filter=pattern, window=50_000, **asked)
    soon(ledge)
    return positions(ledge)


def of_many_blocks(vault: Any, narrow: int = 3, blocks: int = 8) -> Ledge:
    """A log of blocks, each of one run; one of them has a topic of its own."""
    ledge = started(vault)
    for block in range(blocks):
        topics = [b"narrow/t" if block == narrow else b"wide/t"] * 4
        publish(ledge, topics, BLOCK_BYTES // 4, 1 + 4 * block)
    soon(ledge)
    return ledge


class Staging:
    """Publishes a batch of one part."""

    def __init__(self) -> None:
        self.number = 10_000

    def commit(self, ledge: Ledge, topics: list[bytes]) -> None:
        self.number += 1
        store, batch = f"{ledge.id:016x}", self.number
        origin = 0x5_0000 + batch
        ledge.ask(stores.AttachPublisher(store), inbox=f"Inbox/00000000000000aa/{origin:016x}")
        ledge.settle()
        for number, topic in enumerate(topics, 1):
            headers = b'{"$d":["Inbox/cccccccccccccccc/dddddddddddddddd"],"$q":["%b",%d,"job",%d,"0"]}' % (
                store.encode(),
                number - 1,
                batch,
            )
            ledge.deliver(event(topic, b"", origin, number, headers, Flag.DIRECTED))
        ledge.settle()
        number = ledge.ask(stores.CommitBatch(store, "job", batch, [("0", len(topics))]))
        ledge.settle()
        assert ledge.answer(number)[0]


steps = st.one_of(
    st.tuples(st.just("publish"), st.lists(st.sampled_from(TOPICS), min_size=1, max_size=6)),
    st.tuples(st.just("publish"), st.just(MANY)),
    st.tuples(st.just("batch"), st.lists(st.sampled_from(TOPICS), min_size=1, max_size=6)),
    st.tuples(st.just("start"), st.none()),
    st.tuples(st.just("trim"), st.integers(0, 30)),
    st.tuples(st.just("lose"), st.integers(0, 10)),
    st.tuples(st.just("read"), st.tuples(st.sampled_from(FILTERS), st.integers(0, 60))),
)


@examples(150)
@given(st.lists(steps, min_size=2, max_size=14))
def test_a_reading_gets_what_its_filter_matches_whatever_has_a_summary(did: list[tuple[str, Any]]) -> None:
    """Of publications, batches, readings that begin anywhere, starts, retention and lost summaries in any order."""
    ledge = started(None)
    staging = Staging()
    kept: list[bytes] = []

    def check(pattern: str, start: int) -> None:
        start = max(ledge.vault.logs["main"].first if kept else 0, min(start, len(kept)))
        wanted = [at for at in range(start, len(kept)) if matches(pattern.encode(), kept[at])]
        assert found(ledge, pattern, position=start) == wanted

    for what, detail in did:
        if what == "publish":
            publish(ledge, detail, 0, 1 + len(kept))
            kept += detail
        elif what == "batch":
            staging.commit(ledge, detail)
            kept += detail
        elif what == "start":
            ledge = started(ledge.vault)
        elif what == "trim":
            ledge.vault.commit([Trim("main", detail)])
            ledge = started(ledge.vault)
        elif what == "lose" and (there := ends(ledge.vault)):
            ledge.vault.commit([Delete(f"{PREFIX}{there[detail % len(there)]:020d}")])
        elif what == "read":
            check(*detail)
    ledge = started(ledge.vault)
    for pattern in FILTERS * 2:
        check(pattern, 0)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def vault(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        yield Watched(Ledge().vault)
        return
    if request.param == "sqlite":
        subject: Any = SqliteSubject()
    else:
        server: Server = request.getfixturevalue("postgres")
        subject = PostgresSubject(server)
    yield Watched(subject)
    subject.end()


def test_a_log_has_summaries_as_it_grows_and_a_narrow_reading_reads_its_own_blocks_alone(vault: Any) -> None:
    of_many_blocks(vault)
    assert ends(vault) == list(range(4, 36, 4))
    ledge = started(vault)
    vault.bytes = 0
    assert found(ledge, "narrow/#") == [12, 13, 14, 15]
    assert 0 < vault.bytes < 3 * BLOCK_BYTES
    vault.bytes = 0
    assert found(ledge, "nothing/#") == []
    assert vault.bytes == 0


def test_a_vault_of_before_gets_summaries_as_it_is_read(vault: Any) -> None:
    of_many_blocks(vault)
    vault.commit(tuple(Delete(f"{PREFIX}{end:020d}") for end in ends(vault)))
    ledge = started(vault)
    assert found(ledge, "narrow/#") == [12, 13, 14, 15]
    assert ends(vault) == list(range(4, 36, 4))
    vault.bytes = 0
    assert found(ledge, "narrow/#") == [12, 13, 14, 15]
    assert 0 < vault.bytes < 3 * BLOCK_BYTES


def test_a_block_that_was_cut_short_by_a_crash_is_summarised_when_it_is_read() -> None:
    ledge = started(None)
    publish(ledge, [b"t"] * 3, 1_000)
    ledge = started(ledge.vault)
    for first in range(4, 12, 4):
        publish(ledge, [b"u"] * 4, BLOCK_BYTES // 4, first)
    soon(ledge)
    assert ends(ledge.vault) == [7, 11]
    ledge = started(ledge.vault)
    assert found(ledge, "nothing") == []
    assert ends(ledge.vault) == [3, 7, 11]


def test_a_durable_subscription_and_one_with_a_condition_pass_over_too() -> None:
    ledge = of_many_blocks(Watched(Ledge().vault))
    vault: Any = ledge.vault
    ledge = started(vault)
    vault.bytes = 0
    assert found(ledge, "narrow/#", name="mine", start="first") == [12, 13, 14, 15]
    assert found(ledge, "narrow/#", language="predicates", where="n present", name="other", start="first") == []
    assert 0 < vault.bytes < 6 * BLOCK_BYTES


def test_a_reading_that_ends_or_is_paced_ends_where_it_should() -> None:
    ledge = started(of_many_blocks(None).vault)
    assert found(ledge, "narrow/#", end=14) == [12, 13]
    assert notices(ledge)[-1]["next"] == 14
    assert found(ledge, "nothing", end=14) == []
    assert notices(ledge)[-1]["next"] == 14
    assert found(ledge, "narrow/#", pace=1_000_000.0) == [12, 13, 14, 15]


def test_what_was_lost_is_sent_again_though_the_reading_is_far_ahead() -> None:
    ledge = started(of_many_blocks(None).vault)
    assert found(ledge, "narrow/#") == [12, 13, 14, 15]
    ledge.frames.clear()
    ledge.ask(stores.GiveCredit(f"{ledge.id:016x}", 1, 2, again=True), inbox=INBOX)
    ledge.settle()
    assert positions(ledge) == [12, 13, 14, 15]


def test_summaries_of_what_retention_removed_are_removed() -> None:
    ledge = of_many_blocks(None)
    ledge.vault.commit([Trim("main", 17)])
    ledge = started(ledge.vault)
    soon(ledge, 60_000)
    assert ends(ledge.vault) == list(range(20, 36, 4))


def test_damage_is_told_to_a_reader_whom_it_concerns_and_is_never_summarised() -> None:
    ledge = of_many_blocks(None)
    ledge.vault.logs["main"].damaged[12] = None
    ledge = started(ledge.vault)
    found(ledge, "wide/#")
    assert not any("gap" in each for each in notices(ledge)), "nothing that it wants was there"
    found(ledge, "narrow/#")
    assert notices(ledge)[0]["gap"] == [12, 16]
    ledge.vault.commit([Delete(f"{PREFIX}{end:020d}") for end in ends(ledge.vault)])
    ledge = started(ledge.vault)
    found(ledge, "wide/#")
    assert notices(ledge)[0]["gap"] == [12, 16]
    assert ends(ledge.vault) == [4, 8, 12, 20, 24, 28, 32]


def test_a_damaged_summary_is_as_good_as_none() -> None:
    ledge = of_many_blocks(None)
    ledge.vault.damaged_keys |= dict.fromkeys([f"{PREFIX}{16:020d}", f"{PREFIX}{20:020d}"])
    ledge.vault.commit([Put(f"{PREFIX}garbage", b"x")])
    ledge.vault.damaged_keys[f"{PREFIX}garbage"] = None
    ledge = started(ledge.vault)
    assert found(ledge, "narrow/#") == [12, 13, 14, 15]
    assert not any(16 <= int(key[-20:]) <= 20 for key in ledge.vault.damaged_keys if key[-1].isdigit())


def test_a_vault_that_takes_no_summaries_is_read_as_before_and_asked_for_none_for_a_while() -> None:
    ledge = of_many_blocks(None)
    ledge.vault.commit([Delete(f"{PREFIX}{end:020d}") for end in ends(ledge.vault)])
    ledge = started(ledge.vault)
    opened(ledge, filter="narrow/#", window=50_000)
    ledge.wait(1_000)
    ledge.read()
    assert any(isinstance(change, Put) for _, changes in ledge.commits for change in changes)
    ledge.fail(Reason.VAULT_FULL)
    assert found(ledge, "narrow/#") == [12, 13, 14, 15]
    assert ends(ledge.vault) == []
    soon(ledge, 60_000)
    found(ledge, "narrow/#")
    assert ends(ledge.vault) == list(range(4, 36, 4))


def test_a_batch_in_the_middle_of_a_block_is_in_no_summary_before_it_is_read() -> None:
    ledge = started(None)
    publish(ledge, [b"wide/t"] * 3)
    Staging().commit(ledge, [b"narrow/t"] * 2)
    publish(ledge, [b"wide/t"] * 4, BLOCK_BYTES // 4, 4)
    soon(ledge)
    assert ends(ledge.vault) == [3, 9]
    for _ in range(2):
        ledge = started(ledge.vault)
        assert found(ledge, "narrow/#") == [3, 4]
    assert ends(ledge.vault) == [3, 5, 9]
