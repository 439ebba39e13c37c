"""A durable name of a client without credentials belongs to the client that made it.

The clients here write the JSON of their requests, and their proofs, by themselves.
"""

from __future__ import annotations

import hmac
import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import Reason
from heliograph.machine import Instant
from heliograph.sim.disk import Contents
from heliograph.sim.storing.store_user import StoreUser
from heliograph.stores.config import StoreConfig
from heliograph.stores.names import NameOwner, Names, NameState, lister_of
from heliograph.vault import Put
from heliograph.wire import stores
from heliograph.wire.bodies import Body
from heliograph.wire.frames import Frame, Kind, ServiceFlag, event
from heliograph.wire.limits import FRAME_BYTES_MAX
from heliograph.wire.name_proofs import hash_of
from tests.stores.ledge import ORIGIN, Ledge
from tests.stores.stage import Stage

pytestmark = pytest.mark.req("O6", "N10")

MINE, THEIRS = b"the secret of one client", b"the secret of another one"
OTHER = "Inbox/00000000000000aa/00000000000000ee"


def proof(secret: bytes, store: str, name: str = "") -> str:
    """As the protocol page says."""
    return hmac.new(secret, f"{store}/{name}".encode(), "sha256").hexdigest()


class Asker(StoreUser):
    """A client without credentials that asks what a test tells it to."""

    def __init__(self, name: str, brokers: list[tuple[str, int]], seed: int, notebook: object) -> None:
        super().__init__(name, brokers, seed)
        self.refused: list[int] = []

    def _hear(self, frame: Frame, now: Instant) -> None:
        if frame.kind == Kind.SERVICE and frame.flags & ServiceFlag.REFUSAL:
            self.refused.append(msgspec.json.decode(frame.payload)["code"])
        super()._hear(frame, now)


class Shop:
    """Two brokers with a store between them, ten stored publications, and clients without credentials."""

    def __init__(self, *clients: str, **settings: Any) -> None:
        self.stage = stage = Stage(1)
        stage.broker("a")
        stage.broker("b", "a", store=StoreConfig(enabled=True, name="s1", patterns=("orders/#",), **settings))
        stage.run(3)
        stage.publisher("writer", "a", topics=["orders/1"], count=10)
        for client in clients:
            stage.party(Asker, client, "a")
        stage.run(3)
        self.store = self.ask(clients[0], do="find", filter="#")["stores"][0]["store"]

    def begin(self, client: str, body: dict[str, Any]) -> tuple[Asker, list[Any]]:
        host = self.stage.world.hosts[client]
        asker = host.seat(client).machine
        assert isinstance(asker, Asker)
        answers: list[Any] = []
        host.tell(
            host.seat(client),
            lambda machine, now: machine.ask(cast(Any, body), lambda answer, _: answers.append(answer), now),
        )
        return asker, answers

    def ask(self, client: str, **body: Any) -> Any:
        """The answer, or the code of a refusal."""
        asker, answers = self.begin(client, body)
        self.stage.run(0.3)
        assert len(answers) == 1
        return asker.refused[-1] if answers[0] is None else answers[0]

    def open(self, client: str, secret: bytes, name: str = "billing", channel: int = 1) -> Any:
        shown = {"proof": proof(secret, self.store, name), "owner": proof(secret, self.store)}
        body = {"channel": channel, "name": name, "filter": "orders/#", "start": "first", **shown}
        return self.ask(client, do="open", store=self.store, **body)

    def names(self, client: str, secret: bytes) -> list[str]:
        found = self.ask(client, do="names", store=self.store, owner=proof(secret, self.store))
        return [each["name"] for each in found["names"]]

    def restart_store(self) -> None:
        host = self.stage.world.hosts["b"]
        self.stage.world.crash(host)
        self.stage.run(1)
        self.stage.world.start(host)
        self.stage.run(7)


def attempts(shop: Shop, client: str, secret: bytes) -> dict[str, Any]:
    """Everything that one can do with another's name."""
    shown = {"name": "billing", "proof": proof(secret, shop.store, "billing")}
    return {
        "list": shop.names(client, secret),
        "acknowledge": shop.ask(client, do="ack", store=shop.store, before=10, **shown),
        "take over": shop.open(client, secret),
        "drop": shop.ask(client, do="drop", store=shop.store, **shown),
    }


REFUSED = {"list": [], **dict.fromkeys(("acknowledge", "take over", "drop"), Reason.NAME_FOREIGN)}


def test_no_other_client_without_credentials_lists_acknowledges_takes_over_or_drops_a_name() -> None:
    shop = Shop("owner", "thief")
    assert shop.open("owner", MINE)["created"]
    assert attempts(shop, "thief", THEIRS) == REFUSED
    assert shop.names("owner", MINE) == ["billing"]
    assert shop.open("owner", MINE, channel=2)["position"] == 0


def test_a_request_without_a_proof_is_refused() -> None:
    shop = Shop("owner")
    shop.open("owner", MINE)
    body = {"store": shop.store, "name": "billing"}
    assert shop.ask("owner", do="open", channel=2, **body) == Reason.NAME_UNPROVEN
    assert shop.ask("owner", do="ack", before=10, **body) == Reason.NAME_UNPROVEN
    assert shop.ask("owner", do="drop", **body) == Reason.NAME_UNPROVEN
    assert shop.ask("owner", do="names", store=shop.store)["names"] == []


def test_the_proof_of_one_name_or_store_proves_no_other() -> None:
    shop = Shop("owner")
    shop.open("owner", MINE)
    for shown in (proof(MINE, shop.store, "other"), proof(MINE, "0" * 16, "billing"), proof(MINE, shop.store)):
        body = {"store": shop.store, "name": "billing", "proof": shown}
        assert shop.ask("owner", do="drop", **body) == Reason.NAME_FOREIGN


def test_a_store_that_was_killed_knows_the_owners_of_its_names() -> None:
    shop = Shop("owner", "thief")
    shop.open("owner", MINE)
    shop.restart_store()
    assert attempts(shop, "thief", THEIRS) == REFUSED
    assert shop.names("owner", MINE) == ["billing"]
    assert "created" not in shop.open("owner", MINE)


def test_one_clients_names_leave_room_for_another_source() -> None:
    """Each open is answered when it is durable, so many are under way at a time."""
    shop = Shop("greedy", "modest", names_max=1_200, names_per_entity_max=1_000)
    begun = []
    for number in range(1_000):
        name = f"n{number}"
        shown = {"proof": proof(THEIRS, shop.store, name), "owner": proof(THEIRS, shop.store)}
        body = {"do": "open", "store": shop.store, "channel": 1, "name": name, **shown}
        begun.append(shop.begin("greedy", body))
        if number % 50 == 49:
            shop.stage.run(0.3)
    granted = sum(answers[0] is not None for _, answers in begun)
    assert granted == 600  # as many as it leaves for others
    assert set(begun[0][0].refused) == {Reason.NAMES_OVER_LIMIT}
    assert shop.open("modest", MINE)["created"]
    shop.restart_store()
    assert shop.open("greedy", THEIRS, "more") == Reason.NAMES_OVER_LIMIT
    assert shop.open("modest", MINE, "two")["created"]


# -- a store by itself: administrators, entities, older vaults ------------------------------------------------------


class Counter:
    """A store with ten publications, and what it says to requests."""

    def __init__(self, vault: Contents | None = None, **settings: Any) -> None:
        self.ledge = Ledge(vault, **settings)
        self.store = f"{self.ledge.id:016x}"
        if vault is None:
            self.ledge.deliver(*(event(b"orders", b"%d" % number, ORIGIN, number) for number in range(1, 11)))
            self.ledge.settle()

    def say(self, request: Body, **asker: Any) -> Any:
        """The answer, or the code of a refusal."""
        number = self.ledge.ask(request, **asker)
        self.ledge.settle()
        granted, said = self.ledge.answer(number)
        return said if granted else said["code"]

    def open(self, secret: bytes, name: str = "billing", channel: int = 1, **asker: Any) -> Any:
        shown, owner = proof(secret, self.store, name), proof(secret, self.store)
        request = stores.OpenChannel(self.store, channel, name, start="first", proof=shown, owner=owner)
        return self.say(request, **{"entity": "anonymous", **asker})

    def acknowledge(self, secret: bytes, before: int) -> Any:
        shown = proof(secret, self.store, "billing")
        return self.say(stores.AckPositions(self.store, "billing", before, proof=shown), entity="anonymous")

    def notices(self) -> list[int]:
        frames = [each for each in self.ledge.frames if each.flags & stores.StoredFlag.NOTICE]
        return [json.loads(each.payload).get("code", 0) for each in frames]


ADMIN = {"entity": "root", "roles": ("admin",), "inbox": OTHER}


OTHER_READINGS = [
    {"filter": "orders/x"},
    {"filter": "#"},
    {"where": ""},
    {"where": "n = 2"},
    {"language": "sql", "where": "n LIKE '1%'"},
]


@pytest.mark.req("N10")
@pytest.mark.parametrize("other", OTHER_READINGS)
def test_a_name_is_refused_for_another_filter_or_condition_and_loses_nothing(other: dict[str, str]) -> None:
    """Its position would move past what the filter before had not read."""
    counter = Counter()
    first = {"filter": "orders/#", "language": "predicates", "where": "n = 1"}
    other = {**first, **other}
    if not other["where"]:
        del other["language"]

    def open_(**asked: str) -> int:
        request = stores.OpenChannel(counter.store, 1, "billing", start="first", **asked)
        return counter.ledge.ask(request, entity="acme")

    assert counter.ledge.answer(settled(counter, open_(**first)))[0]
    granted, said = counter.ledge.answer(settled(counter, open_(**other)))
    assert (granted, said["code"]) == (False, Reason.NAME_DIFFERS)
    for part in ("'orders/#' where 'n = 1' (predicates)", "another name", "subscription drop billing"):
        assert part in said["text"]
    granted, said = counter.ledge.answer(settled(counter, open_(**first | {"where": "n=1"})))  # it means the same
    assert (granted, said["position"], "created" in said) == (True, 0, False)
    assert counter.say(stores.DropName(counter.store, "billing"), entity="acme") == {}
    assert counter.ledge.answer(settled(counter, open_(**other)))[1]["created"]


def settled(counter: Counter, number: int) -> int:
    counter.ledge.settle()
    return number


def test_the_first_client_that_takes_a_released_name_reads_it_with_the_same_filter() -> None:
    counter = Counter()
    counter.open(THEIRS)
    assert counter.say(stores.ReleaseName(counter.store, "billing"), **ADMIN) == {}
    shown = {"proof": proof(MINE, counter.store, "billing"), "owner": proof(MINE, counter.store)}
    narrow = stores.OpenChannel(counter.store, 1, "billing", filter="orders", **shown)
    assert counter.say(narrow, entity="anonymous") == Reason.NAME_DIFFERS
    assert counter.open(MINE)["position"] == 0


def test_a_name_of_an_older_vault_goes_to_the_first_client_that_shows_a_secret() -> None:
    first = Counter()
    first.ledge.vault.commit([Put("s/anonymous/billing", b'{"filter":"#","before":4,"used_ns":1700000000000000000}')])
    counter = Counter(first.ledge.vault)
    assert counter.acknowledge(THEIRS, 9) == Reason.NAME_FOREIGN  # it must be opened first
    assert counter.open(MINE)["position"] == 4
    assert counter.open(THEIRS) == Reason.NAME_FOREIGN
    again = Counter(first.ledge.vault)
    assert again.open(THEIRS) == Reason.NAME_FOREIGN
    assert again.open(MINE)["position"] == 4


def test_an_administrator_releases_a_name_to_the_next_client_that_uses_it() -> None:
    counter = Counter()
    counter.open(THEIRS)
    counter.acknowledge(THEIRS, 6)
    release = stores.ReleaseName(counter.store, "billing")
    assert counter.say(release, entity="anonymous") == Reason.ASK_DENIED
    assert counter.say(release, entity="root") == Reason.ASK_DENIED
    assert counter.say(release, **ADMIN) == {}
    assert counter.notices() == [Reason.NAME_FOREIGN]  # the reading of the client that had it has ended …
    assert counter.acknowledge(THEIRS, 9) == Reason.NAME_FOREIGN  # … and what it still says changes nothing
    assert Counter(counter.ledge.vault).open(MINE)["position"] == 6
    assert counter.open(MINE)["position"] == 6
    assert counter.open(THEIRS) == Reason.NAME_FOREIGN
    assert counter.say(stores.ReleaseName(counter.store, "nothing"), **ADMIN) == Reason.NAME_UNKNOWN


def test_an_administrator_sees_all_names_and_drops_them() -> None:
    counter = Counter()
    counter.open(MINE)
    counter.open(MINE, "wages", 2, entity="alice")
    listed = counter.say(stores.ListNames(counter.store), **ADMIN)["names"]
    assert [(each["entity"], each["name"]) for each in listed] == [("alice", "wages"), ("anonymous", "billing")]
    drop = stores.DropName(counter.store, "billing", entity="anonymous")
    assert counter.say(drop, entity="alice") == Reason.ASK_DENIED
    assert counter.say(drop, **ADMIN) == {}
    assert counter.open(THEIRS, channel=3)["created"]


@pytest.mark.req("O6")
def test_a_page_of_names_with_long_conditions_fits_a_frame() -> None:
    counter = Counter()
    where = "payload = '" + "\U0001f989" * 7_900 + "'"
    for number in range(45):
        shown = {"proof": proof(MINE, counter.store, f"n{number:02}"), "owner": proof(MINE, counter.store)}
        opened = stores.OpenChannel(counter.store, number, f"n{number:02}", language="sql", where=where, **shown)
        assert counter.say(opened, entity="anonymous")["created"]
    seen: list[str] = []
    found = {"more": True}
    while found.get("more"):
        after = f"anonymous/{seen[-1]}" if seen else ""
        found = counter.say(stores.ListNames(counter.store, after=after), **ADMIN)
        assert found["names"], "a page has at least one name"
        assert len(json.dumps(found, ensure_ascii=False).encode()) < FRAME_BYTES_MAX
        seen += [each["name"] for each in found["names"]]
    assert seen == [f"n{number:02}" for number in range(45)]


def test_with_credentials_a_name_belongs_to_the_entity_and_needs_no_proof() -> None:
    counter = Counter()
    assert counter.open(MINE, entity="alice")["created"]
    assert counter.open(THEIRS, entity="alice")["position"] == 0
    body = stores.AckPositions(counter.store, "billing", 3)
    assert counter.say(body, entity="alice") == {"before": 3}
    assert counter.say(body, entity="bob") == Reason.NAME_UNKNOWN


def test_a_holder_gets_as_many_places_as_it_leaves_to_others() -> None:
    """Entities, and source addresses of clients without credentials, come one after the other and take all they can."""
    counter = Counter(names_max=64, names_per_entity_max=64)
    taken = []
    for holder in range(6):
        asker = {"entity": "anonymous", "source": f"10.0.0.{holder}"} if holder % 2 else {"entity": f"e{holder}"}
        said = [counter.open(MINE, f"{holder}-{number}", number, inbox=OTHER, **asker) for number in range(64)]
        taken.append(sum(isinstance(each, dict) for each in said))
    assert taken == [32, 16, 8, 4, 2, 1]
    assert counter.open(MINE, "last", entity="anonymous", source="10.0.0.99")["created"]
    counter.say(stores.DropName(counter.store, "0-0"), entity="e0")
    assert counter.open(MINE, "again", entity="anonymous", source="10.0.0.100")["created"]


@pytest.mark.req("O6")
def test_listing_names_looks_only_at_the_page_of_the_asker() -> None:
    counter = Counter(names_per_entity_max=5_000)
    names = counter.ledge.store._names
    for number in range(4_000):
        owner = NameOwner("p", hash_of(proof(MINE, counter.store)) if number % 2 else "l", "10.0.0.1")
        names.put(("anonymous", f"n{number:04}"), NameState("#", 0, owner=owner))
    mine: list[str] = []
    found: dict[str, Any] = {"more": True}
    while found.get("more"):
        before = names.looked_at
        after = f"anonymous/{mine[-1]}" if mine else ""
        body = stores.ListNames(counter.store, after=after, owner=proof(MINE, counter.store))
        found = counter.say(body, entity="anonymous")
        mine += [each["name"] for each in found["names"]]
        assert names.looked_at - before == len(found["names"]) <= 100
    assert mine == [f"n{number:04}" for number in range(1, 4_000, 2)]
    before = names.looked_at
    for entity, shown in (("anonymous", proof(THEIRS, counter.store)), ("anonymous", ""), ("bob", "")):
        assert counter.say(stores.ListNames(counter.store, owner=shown), entity=entity)["names"] == []
    assert names.looked_at == before


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "put", "drop"]),
            st.sampled_from([("anonymous", "a"), ("anonymous", "b"), ("e", "a"), ("e", "b"), ("f", "a")]),
            st.sampled_from(["", "l1", "l2", None]),
            st.integers(0, 5),
        ),
        max_size=30,
    )
)
def test_names_are_listed_by_who_may_and_held_back_from_the_lowest_position(steps: list[Any]) -> None:
    names, known = Names(StoreConfig()), dict[tuple[str, str], NameState]()
    for do, key, lists, before in steps:
        if do == "put":
            has_owner = lists is not None and key[0] == "anonymous"
            owner = NameOwner("p", hash_of(lists)) if has_owner else None
            known[key] = NameState("#", before, owner=owner)
            names.put(key, known[key])
        else:
            assert (names.drop(key) is None) == (known.pop(key, None) is None)
        assert names.held == min((state.before for state in known.values()), default=None)
        assert names.page(("", ""), 9, None) == (sorted(known.items(), key=lambda item: item[0]), False)
        for shown in ("", "l1", "l2"):
            hashed = hash_of(shown)
            listed = [key for key, _ in names.page(("", ""), 9, lister_of("anonymous", shown))[0]]
            owned = [key for key, state in known.items() if hashed and state.owner and state.owner.lists == hashed]
            assert listed == sorted(owned)
        assert [key for key, _ in names.page(("", ""), 9, lister_of("e", "l1"))[0]] == sorted(
            key for key in known if key[0] == "e"
        )
