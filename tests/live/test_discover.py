"""Clients that look for their broker with real sockets on loopback: what they find, remember, and show to whom."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import heliograph
from benchmarks.ports import free_port
from heliograph import Discover, NotConnectedError, UsageError
from heliograph.broker.commands import Listening
from heliograph.broker.config import BrokerConfig, ListenerConfig
from heliograph.config.keyring_files import load_keyring
from heliograph.discovery.brokers.config import DirectoryConfig, MulticastConfig, ResponderConfig, written
from heliograph.errors import Reason
from heliograph.live import remembered_file
from heliograph.live.discover import discover, options_from
from heliograph.live.loop import Driver
from heliograph.live.resolver import directories_of, system_resolvers
from heliograph.live.tls import TlsContexts, TlsFiles, client_context, server_context
from heliograph.machine import Address
from heliograph.model.identity import Role
from heliograph.node import BROKER, DIRECTORY, DISCOVERY, build, build_alone
from heliograph.trust.config import TlsConfig
from heliograph.trust.tokens import hash_token
from tests.client.live import on_the_loop, until
from tests.discovery.brokers.test_live import a_group, network, running
from tests.discovery.brokers.test_srv import an_answer, labels, record
from tests.live.certificates import Authority

pytestmark = pytest.mark.live

NOWHERE = "127.0.0.1:9"  # nobody listens there
PATIENCE_MS = 30_000  # for searches that find somebody: they end long before, unless the machine is busy
NONE = MulticastConfig(enabled=False)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOGRAPH_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("HELIOGRAPH_URL", raising=False)


def asking(group: MulticastConfig, **more: object) -> Discover:
    """Options that ask this group, and nobody who happens to run here."""
    fields: dict[str, object] = {"brokers": (NOWHERE,), "timeout_ms": PATIENCE_MS} | more
    return Discover(multicast=group.enabled, multicast_group=group.group, multicast_port=group.port, **fields)  # type: ignore[arg-type]


@asynccontextmanager
async def brokers_with_a_directory(count: int) -> AsyncIterator[tuple[Driver, Address]]:
    """A directory that knows all of these brokers, and its address."""
    listener = ListenerConfig(name=DIRECTORY, port=0)
    async with running(build_alone("bdn", DirectoryConfig(port=0), seed=1), listener) as (bdn, _, address):
        responder = ResponderConfig(port=0, multicast=NONE, directories=(written(address),))
        async with network(count, responder):
            await until(lambda: bdn.report(DIRECTORY, "overview")["measured"] == count)
            yield bdn, address


# -- finding --------------------------------------------------------------------------------------------------------


@pytest.mark.req("B12", "B14")
@on_the_loop
async def test_a_client_without_an_address_is_connected_to_the_broker_that_was_found() -> None:
    group = a_group()
    responder = ResponderConfig(port=0, multicast=group)
    async with network(3, responder), heliograph.connect(discover=asking(group)) as client:
        told = client.report("discovery")
        assert client.broker == told["broker"]
        assert told["proven"]
        assert told["why"] == "to connect"
        await client.publish("a", b"1")
        await client.flush()


@on_the_loop
async def test_a_client_that_was_given_an_address_looks_for_nobody() -> None:
    async with network(1, ResponderConfig(port=0, multicast=NONE)) as (driver,):
        url = driver.report(BROKER, "usage")["addresses"][0]
        async with heliograph.connect(url) as client:
            assert client.report("discovery") is None
        with pytest.raises(UsageError, match="either an address or discover"):
            heliograph.connect(url, discover=True)


@on_the_loop
async def test_the_environment_says_whom_to_ask_and_a_url_there_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    group = a_group()
    monkeypatch.setenv("HELIOGRAPH_SEARCH__MULTICAST_GROUP", group.group)
    monkeypatch.setenv("HELIOGRAPH_SEARCH__MULTICAST_PORT", str(group.port))
    monkeypatch.setenv("HELIOGRAPH_BDNS", NOWHERE)
    async with network(1, ResponderConfig(port=0, multicast=group)) as (driver,):
        async with heliograph.connect() as client:
            assert client.report("discovery")["broker"] == "b0"
        monkeypatch.setenv("HELIOGRAPH_URL", driver.report(BROKER, "usage")["addresses"][0])
        async with heliograph.connect() as client:
            assert client.report("discovery") is None


@on_the_loop
async def test_where_nobody_answers_the_listed_broker_is_tried_all_the_same() -> None:
    async with network(1, ResponderConfig(port=0, multicast=NONE)) as (driver,):
        listed = driver.report(BROKER, "usage")["addresses"][0].removeprefix("heliograph://")
        with_udp_elsewhere = Discover(multicast=False, brokers=(listed,), timeout_ms=PATIENCE_MS)
        async with heliograph.connect(discover=with_udp_elsewhere) as client:
            assert client.broker == "b0"
            assert client.report("discovery")["proven"] is False


@pytest.mark.req("B13")
@on_the_loop
async def test_who_finds_nobody_hears_everything_that_was_tried() -> None:
    group = a_group()
    options = asking(group, bdns=(NOWHERE, "no.such.host.invalid:4719"), brokers=(), timeout_ms=60)
    with pytest.raises(NotConnectedError) as error:
        await heliograph.connect(discover=options)
    assert error.value.reason is Reason.BROKER_NOT_FOUND
    for words in (f"directory {NOWHERE}", f"multicast {written(group.address)}", "no.such.host.invalid:4719"):
        assert words in str(error.value)


def test_options_come_from_the_file_and_the_environment_goes_before_it(tmp_path: Path) -> None:
    file = tmp_path / "heliograph.toml"
    file.write_text('[search]\nbdns = ["a:1"]\npings = 5\n[limits]\nnot_for_clients = 1\n')
    options = options_from({"HELIOGRAPH_CONFIG": str(file), "HELIOGRAPH_BDNS": "b:2,c:3", "HELIOGRAPH_OTHER": "x"})
    assert (options.bdns, options.pings) == (("b:2", "c:3"), 5)
    assert options_from({}) == Discover()


# -- names ----------------------------------------------------------------------------------------------------------


class Resolver(asyncio.DatagramProtocol):
    """A name server that knows one directory, and talks nonsense first."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Address) -> None:
        right = an_answer(record(labels("localhost"), self._port), asked=data)
        for answer in (b"nonsense", b"\0\0" + right[2:], right):
            self._transport.sendto(answer, addr)  # type: ignore[attr-defined]


@asynccontextmanager
async def a_resolver(port: int) -> AsyncIterator[Address]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Resolver(port), local_addr=("127.0.0.1", 0))
    try:
        yield transport.get_extra_info("sockname")
    finally:
        transport.close()


@pytest.mark.req("B20")
@on_the_loop
async def test_a_domain_names_its_directories() -> None:
    async with brokers_with_a_directory(2) as (_, address), a_resolver(address[1]) as resolver:
        options = Discover(bdns=("example.org",), multicast=False, timeout_ms=PATIENCE_MS)
        result = await discover(options, resolvers=[resolver])
    assert result.proven
    assert result.tried[0].startswith(f"directory {written(address)}: acknowledged")


@pytest.mark.req("B20")
@on_the_loop
async def test_a_domain_without_an_answer_is_told_of() -> None:
    silent = ("127.0.0.1", free_port())
    found, problems = await directories_of(["example.org"], 0.05, [silent])
    assert found == []
    assert problems == ["directories of example.org: no name server answered"]


def test_name_servers_are_read_from_the_systems_file(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_bytes(b"# x\nnameserver 192.0.2.53\nnameserver bad name\nsearch a\nnameserver fe80::1\n\xff\xfe\n")
    assert system_resolvers(file) == [("192.0.2.53", 53), ("fe80::1", 53)]
    assert system_resolvers(tmp_path / "missing") == [("127.0.0.1", 53)]


# -- remembering ----------------------------------------------------------------------------------------------------


@pytest.mark.req("B15")
@on_the_loop
async def test_the_target_set_is_remembered_and_asked_when_its_directory_is_gone(tmp_path: Path) -> None:
    async with brokers_with_a_directory(3) as (bdn, address):
        options = Discover(bdns=(written(address),), multicast=False, timeout_ms=PATIENCE_MS)
        first = await discover(options)
        assert first.proven
        (file,) = (tmp_path / "state").glob("brokers-*.json")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        kept = {one["broker"] for one in json.loads(file.read_bytes())}
        assert first.broker in kept
        assert kept <= {"b0", "b1", "b2"}
        await bdn.stop()
        second = await discover(options)
        assert second.proven
        assert any(words.startswith("remembered broker") for words in second.tried)
        third = await discover(replace(options, remember=False, timeout_ms=50))
        assert not third.found


@pytest.mark.req("B15")
def test_a_file_that_others_could_have_written_or_that_is_damaged_is_not_believed(tmp_path: Path) -> None:
    path = remembered_file.file_for(["a:1"], {"XDG_STATE_HOME": str(tmp_path)})
    known = (remembered_file.Remembered("b", "127.0.0.1:1", 2**33),)
    remembered_file.write(path, known)
    assert path.parent == tmp_path / "heliograph"
    assert remembered_file.read(path, 60) == ()  # from a time to come
    path.write_bytes(b"[{")
    assert remembered_file.read(path, 60) == ()
    path.write_text(json.dumps([{"broker": "b", "address": "127.0.0.1:1", "at_s": int(path.stat().st_mtime)}]))
    assert len(remembered_file.read(path, 600)) == 1
    path.chmod(0o666)
    assert remembered_file.read(path, 600) == ()
    assert remembered_file.read(tmp_path / "missing", 60) == ()
    remembered_file.write(tmp_path / "heliograph" / path.name / "below-a-file", known)  # not possible, and no error


def test_only_so_many_files_are_kept(tmp_path: Path) -> None:
    for number in range(remembered_file.FILES_MAX + 5):
        remembered_file.write(remembered_file.file_for([str(number)], {"HELIOGRAPH_STATE_DIR": str(tmp_path)}), ())
    assert len(list(tmp_path.iterdir())) == remembered_file.FILES_MAX


# -- secrets --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def a_broker_that_names(
    address: str, config: BrokerConfig, group: MulticastConfig, files: TlsFiles | None = None
) -> AsyncIterator[None]:
    """A broker that sends whoever finds it to this address; "": to its own."""
    tls = keyring = None
    if files is not None:
        tls = TlsContexts(server_context(files, require_certificate=False), client_context(files))
        keyring = load_keyring(TlsConfig(certificate=str(files.certificate), key=str(files.key)))
    responder = ResponderConfig(port=0, multicast=group)
    node = build(config, seed=1, incarnation=1, services=[responder], keyring=keyring)
    driver = Driver(node.machines, node.pipes, tls=tls)
    driver.start()
    try:
        own = await driver.listen(BROKER, config.listeners[0])
        driver.tell(BROKER, Listening((address or f"heliographs://{written(own)}",)))
        for machine, sockets in node.sockets.items():
            for socket in sockets:
                await driver.open(machine, socket)
        await until(lambda: driver.report(DISCOVERY, "overview")["willing"])
        yield
    finally:
        await driver.stop()


@asynccontextmanager
async def a_rogue(group: MulticastConfig) -> AsyncIterator[list[bytes]]:
    """Answers searches as a broker does, and names an address where it writes down what it is told."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(b"")
        heard[-1] += await reader.read(1 << 16)
        writer.close()

    trap = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = trap.sockets[0].getsockname()[1]
    config = BrokerConfig(name="rogue", listeners=(ListenerConfig(port=0),))
    async with a_broker_that_names(f"heliograph://127.0.0.1:{port}", config, group):
        yield heard
    trap.close()
    await trap.wait_closed()


@pytest.mark.req("B20")
@on_the_loop
async def test_a_rogue_that_answers_multicast_gets_no_token(tmp_path: Path) -> None:
    group = a_group()
    shown = {"entity": "ann", "token": "very-secret-token"}
    async with a_rogue(group) as heard:
        with pytest.raises(NotConnectedError) as error:
            await heliograph.connect(discover=asking(group, brokers=(), bdns=(NOWHERE,)), timeout=60, **shown)  # type: ignore[arg-type]
        assert error.value.reason is Reason.CREDENTIAL_MISSING
        assert heard == []
        # With an authority, unsigned answers are none at all.
        authority = Authority(tmp_path).file
        with pytest.raises(NotConnectedError) as error:
            await heliograph.connect(
                discover=asking(group, brokers=(), bdns=(NOWHERE,), timeout_ms=100),
                authority=authority,
                **shown,  # type: ignore[arg-type]
            )
        assert error.value.reason is Reason.BROKER_NOT_FOUND
        assert heard == []

        # Who has nothing to lose is led astray, and shows nothing.
        async def be_led_astray() -> None:
            await heliograph.connect(discover=asking(group, brokers=(), bdns=(NOWHERE,)), timeout=60)

        connecting = asyncio.create_task(be_led_astray())
        await until(lambda: any(heard))
        connecting.cancel()
        await asyncio.wait([connecting])
        assert not any(b"secret-token" in data for data in heard)


@pytest.mark.req("B20")
@on_the_loop
async def test_a_broker_that_the_authority_vouches_for_gets_the_token(tmp_path: Path) -> None:
    group = a_group()
    authority = Authority(tmp_path)
    files = authority.files("b0", roles=[Role.BROKER])
    token = "a-token-of-ann"
    listener = ListenerConfig(port=0, secure=True, auth="token")
    config = BrokerConfig(
        name="b0", listeners=(listener,), tokens=(hash_token("ann", [Role.CLIENT], token, bytes(16)),)
    )
    async with a_broker_that_names("", config, group, files):
        options = asking(group, brokers=(), bdns=(NOWHERE,))
        shown = {"entity": "ann", "token": token, "authority": authority.file}
        async with heliograph.connect(discover=options, timeout=60, **shown) as client:  # type: ignore[arg-type]
            assert (client.broker, client.entity) == ("b0", "ann")


# -- staying near ---------------------------------------------------------------------------------------------------


@pytest.mark.req("N8")
@on_the_loop
async def test_a_client_whose_broker_is_gone_for_long_is_led_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.client.relocation_policy.AWAY_NS", 100_000_000)
    monkeypatch.setattr("heliograph.live.relocator.LOOK_S", 0.05)
    group = a_group()
    async with network(1, ResponderConfig(port=0, multicast=group)) as (first,):
        client = await heliograph.connect(discover=asking(group))
        assert client.broker == "b0"
        await first.stop()
        await until(lambda: not client.is_connected)
        config = BrokerConfig(name="later", listeners=(ListenerConfig(port=0),))
        node = build(config, seed=5, incarnation=5, services=[ResponderConfig(port=0, multicast=group)])
        async with running(node, config.listeners[0]):
            await until(lambda: client.broker == "later" and client.is_connected)
            assert client.report("discovery")["why"] == "no broker for long"
            await client.close()
