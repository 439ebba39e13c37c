"""TLS on real sockets: who is let in, who is not and why, and that a bad peer harms nobody else."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from heliograph.broker.config import ListenerConfig
from heliograph.errors import ConfigError, Reason
from heliograph.live import secure
from heliograph.live.tls import (
    TlsContexts,
    TlsFiles,
    check_files,
    client_context,
    server_context,
)
from heliograph.machine import Dial
from heliograph.model.identity import Identity, Role
from heliograph.notes import PeerRefused
from tests.live.certificates import Authority
from tests.live.machines import LOOPS, Echo, Recorder, driving, until

pytestmark = pytest.mark.live
SECURE = ListenerConfig(port=0, secure=True, auth="certificate")
both_loops = pytest.mark.parametrize("run", LOOPS, ids=["uvloop", "asyncio"])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server(authority: Authority) -> TlsContexts:
    return TlsContexts(server_context(authority.files("broker", roles=[Role.BROKER]), require_certificate=True))


@pytest.fixture
def refused() -> Iterator[list[Any]]:
    return iter([[]]).__next__()


def hearing(refused: list[Any]) -> Any:
    return lambda name, note: refused.append(note)


@asynccontextmanager
async def secured(address: Any, files: TlsFiles) -> Any:
    reader, writer = await asyncio.open_connection(*address, ssl=client_context(files))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def ending(address: Any, context: ssl.SSLContext) -> str:
    """What a peer hears that is not let in. With TLS 1.3 its handshake may look good to it until it reads."""
    try:
        with socket.create_connection(address) as raw, context.wrap_socket(raw, server_hostname="localhost") as peer:
            peer.sendall(b"let me in")
            return peer.recv(100).decode()
    except ssl.SSLError as error:
        return error.reason or ""


@both_loops
@pytest.mark.req("N14")
def test_a_peer_is_known_by_the_entity_and_roles_of_its_certificate(
    run: Any, authority: Authority, server: TlsContexts
) -> None:
    async def main() -> None:
        machine = Echo()
        async with driving(machine, SECURE, tls=server) as (_, address):
            files = authority.files("sensor-7", roles=[Role.CLIENT, Role.ADMIN])
            async with secured(address, files) as (reader, writer):
                writer.write(b"hello" * 100_000)
                assert await reader.readexactly(500_000) == b"hello" * 100_000
                assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
            peer = machine.peers[1]
            assert peer.transport == "tls"
            assert peer.identity == Identity("sensor-7", (Role.CLIENT, Role.ADMIN), "certificate")
            await until(lambda: machine.detached)

    run(main())


@both_loops
def test_two_drivers_talk_tls_and_both_ends_know_each_other(
    run: Any, authority: Authority, server: TlsContexts
) -> None:
    async def main() -> None:
        machine, echo = Recorder(), Echo()
        client = TlsContexts(client=client_context(authority.files("client-1")))
        async with driving(echo, SECURE, tls=server) as (_, address), driving(machine, None, tls=client) as (driver, _):
            driver.tell("m", lambda m: m.outbox.dial(Dial(*address, secure=True)))
            await until(lambda: machine.peers)
            assert machine.peers[1].ticket == 1
            assert machine.peers[1].identity == Identity("broker", (Role.BROKER,), "certificate")
            driver.tell("m", lambda m: m.outbox.writes.append((1, [b"a", b"b", b"c" * 100_000])))
            await until(lambda: machine.received[1] == b"ab" + b"c" * 100_000)
            driver.tell("m", lambda m: m.outbox.hang_up(1, Reason.GOODBYE))
            await until(lambda: machine.detached and echo.detached)
            assert (machine.detached, echo.detached) == ({1: Reason.GOODBYE}, {1: Reason.CLOSED})

    run(main())


@both_loops
def test_a_fast_peers_first_bytes_and_goodbye_are_not_lost(run: Any, authority: Authority, server: TlsContexts) -> None:
    """It may send and leave before this side knows that the handshake is over."""

    def speak(address: Any, context: ssl.SSLContext) -> None:
        with context.wrap_socket(socket.create_connection(address), server_hostname="127.0.0.1") as link:
            link.sendall(b"hello and goodbye")
            link.unwrap()

    async def main() -> None:
        machine = Recorder()
        context = client_context(authority.files("hasty"))
        async with driving(machine, SECURE, tls=server) as (_, address):
            for number in range(1, 11):
                await asyncio.to_thread(speak, address, context)
                await until(lambda number=number: number in machine.detached)
                assert machine.received[number] == b"hello and goodbye"
                assert machine.detached[number] == Reason.CLOSED

    run(main())


@both_loops
@pytest.mark.req("O6")
def test_peers_with_a_bad_certificate_or_none_are_refused_and_nobody_else_is_harmed(
    run: Any, authority: Authority, server: TlsContexts, tmp_path: Path, refused: list[Any]
) -> None:
    stranger = Authority(tmp_path, "stranger")
    expired = authority.files("late", days_ago=50, days=10)
    bare = ssl.create_default_context(cafile=str(authority.file))
    old = ssl.create_default_context(cafile=str(authority.file))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    late = ssl.create_default_context(cafile=str(authority.file))
    late.load_cert_chain(str(expired.certificate), str(expired.key))
    foreign = ssl.create_default_context(cafile=str(authority.file))
    files = stranger.files("spy")
    foreign.load_cert_chain(str(files.certificate), str(files.key))
    cases = [
        (bare, Reason.CREDENTIAL_MISSING, "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
        (old, Reason.TLS_FAILED, "TLSV1_ALERT_PROTOCOL_VERSION"),
        (late, Reason.CERTIFICATE_EXPIRED, "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
        (foreign, Reason.CERTIFICATE_UNTRUSTED, "TLSV1_ALERT_UNKNOWN_CA"),
    ]

    async def main() -> None:
        machine = Echo()
        good = authority.files("good")
        async with (
            driving(machine, SECURE, tls=server, heard=hearing(refused)) as (driver, address),
            secured(address, good) as (reader, writer),
        ):
            for context, reason, alert in cases:
                refused.clear()
                assert await asyncio.to_thread(ending, address, context) == alert
                await until(lambda: refused)
                assert [type(note) for note in refused] == [PeerRefused]
                assert refused[0].reason is reason
                assert "127.0.0.1:" in refused[0].detail
            writer.write(b"still here")
            assert await reader.readexactly(10) == b"still here"
            assert list(machine.peers) == [1]
            assert len(driver.network._tasks) == 0

    run(main())


@both_loops
@pytest.mark.req("O6")
@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\n\r\n", struct.pack("<IBBHQQI", 24, 16, 0, 0, 0, 0, 0) + b"{}", b"\x00" * 64]
)
def test_plain_text_on_a_tls_port_is_refused_with_a_word_of_help(
    run: Any, server: TlsContexts, refused: list[Any], first: bytes
) -> None:
    async def main() -> None:
        machine = Recorder()
        async with driving(machine, SECURE, tls=server, heard=hearing(refused)) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(first)
            await reader.read()
            await until(lambda: refused)
            assert refused[0].reason is Reason.TLS_FAILED
            assert "plain text" in refused[0].detail
            assert machine.peers == {}
            writer.close()

    run(main())


@both_loops
@pytest.mark.req("O6")
def test_a_peer_that_says_nothing_on_a_tls_port_is_cut_off_and_forgotten(
    run: Any, server: TlsContexts, refused: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secure, "HANDSHAKE_S", 0.1)

    async def main() -> None:
        async with driving(Recorder(), SECURE, tls=server, heard=hearing(refused)) as (driver, address):
            reader, writer = await asyncio.open_connection(*address)
            assert await asyncio.wait_for(reader.read(), 60) == b""
            await until(lambda: refused)
            assert refused[0].reason is Reason.HANDSHAKE_TOO_SLOW
            assert not driver.network._handshakes[0].under_way
            assert not driver.network._tasks
            writer.close()

    run(main())


@both_loops
@pytest.mark.req("O6")
def test_peers_that_vanish_during_the_handshake_leave_nothing_behind(
    run: Any, server: TlsContexts, refused: list[Any]
) -> None:
    async def main() -> None:
        async with driving(Recorder(), SECURE, tls=server, heard=hearing(refused)) as (driver, address):
            before = len(list(Path("/proc/self/fd").iterdir()))
            for number in range(60):
                peer = socket.create_connection(address)
                if number % 3 == 1:
                    peer.send(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a client's hello
                if number % 2:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if number % 5:
                    await asyncio.sleep(0)
                peer.close()
            await asyncio.sleep(0.05)
            await until(lambda: not driver.network._handshakes[0].under_way and not driver.network._tasks)
            assert driver.failure is None
            await until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before + 2)  # libuv keeps one in reserve
            assert {note.reason for note in refused} <= {Reason.RESET, Reason.TLS_FAILED}

    run(main())


@both_loops
def test_too_many_handshakes_at_once_are_cut_at_once(
    run: Any, server: TlsContexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secure, "HANDSHAKES_MAX", 2)

    async def main() -> None:
        async with driving(Recorder(), SECURE, tls=server) as (driver, address):
            silent = [await asyncio.open_connection(*address) for _ in range(2)]
            await until(lambda: len(driver.network._handshakes[0].under_way) == 2)
            reader, writer = await asyncio.open_connection(*address)
            assert await asyncio.wait_for(reader.read(), 60) == b""
            for _, each in [*silent, (reader, writer)]:
                each.transport.abort()

    run(main())


@both_loops
@pytest.mark.req("O6")
def test_silent_tls_handshakes_of_one_address_make_room_for_those_of_another(
    run: Any, authority: Authority, server: TlsContexts, refused: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secure, "HANDSHAKES_MAX", 20)

    async def main() -> None:
        async with driving(Echo(), SECURE, tls=server, heard=hearing(refused)) as (driver, address):
            silent = [await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0)) for _ in range(30)]
            await until(lambda: len(refused) == 10)
            async with secured(address, authority.files("sensor-7")) as (reader, writer):
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
            assert [note.reason for note in refused] == [Reason.SOURCE_OVER_SHARE] * 11
            assert len(driver.network._handshakes[0].under_way) <= 20
            for _, each in silent:
                each.transport.abort()

    run(main())


@both_loops
@pytest.mark.req("O6")
def test_a_peer_for_whom_no_descriptor_is_left_is_cut_before_its_handshake(
    run: Any, authority: Authority, server: TlsContexts, refused: list[Any]
) -> None:
    async def main() -> None:
        async with driving(Echo(), SECURE, tls=server, heard=hearing(refused)) as (driver, address):
            room, driver.network.links.peers_max = driver.network.links.peers_max, 0
            reader, writer = await asyncio.open_connection(*address)
            with suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()
            await until(lambda: not driver.network.links._raw)
            assert [note.reason for note in refused] == [Reason.LINKS_OVER_LIMIT]
            assert not driver.network._handshakes[0].under_way
            driver.network.links.peers_max = room
            async with secured(address, authority.files("sensor-7")) as (reader, writer):
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"

    run(main())


@both_loops
@pytest.mark.req("N14")
def test_a_dial_says_why_the_brokers_certificate_was_not_good(run: Any, authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    listener = ListenerConfig(port=0, secure=True)
    late = authority.files("late", roles=[Role.BROKER], days_ago=50, days=10)
    expired = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    expired.load_cert_chain(str(late.certificate), str(late.key))
    good = server_context(authority.files("broker", roles=[Role.BROKER], trust=False), require_certificate=False)
    trusting = client_context(TlsFiles(authority=authority.file))
    cases = [
        (expired, trusting, None, Reason.CERTIFICATE_EXPIRED),
        (good, client_context(TlsFiles(authority=stranger.file)), None, Reason.CERTIFICATE_UNTRUSTED),
        (good, trusting, "elsewhere.example", Reason.CERTIFICATE_UNTRUSTED),
    ]

    async def main() -> None:
        for theirs, ours, name, reason in cases:
            machine = Recorder()
            async with (
                driving(Recorder(), listener, tls=TlsContexts(theirs)) as (_, address),
                driving(machine, None, tls=TlsContexts(client=ours)) as (driver, _),
            ):
                dial = Dial(*address, secure=True, server_name=name)
                driver.tell("m", lambda m, dial=dial: m.outbox.dial(dial))
                await until(lambda machine=machine: machine.results)
                assert machine.results == [(1, reason)]
                assert machine.peers == {}

    run(main())


@both_loops
def test_a_secure_dial_to_a_plain_listener_fails_as_tls(run: Any, authority: Authority) -> None:
    async def main() -> None:
        machine = Recorder()
        tls = TlsContexts(client=client_context(authority.files("client-1")))
        async with driving(Echo()) as (_, address), driving(machine, None, tls=tls) as (driver, _):
            driver.tell("m", lambda m: m.outbox.dial(Dial(*address, secure=True)))
            await until(lambda: machine.results)
            assert machine.results == [(1, Reason.TLS_FAILED)]

    run(main())


@both_loops
def test_a_reader_that_never_reads_is_pressed_over_tls_too_and_stopping_does_not_hang(
    run: Any, authority: Authority, server: TlsContexts
) -> None:
    async def main() -> None:
        machine = Recorder()
        async with (
            driving(machine, SECURE, tls=server) as (driver, address),
            secured(address, authority.files("lazy")) as (_, writer),
        ):
            await until(lambda: machine.peers)
            writer.transport.pause_reading()
            for _ in range(64):
                driver.tell("m", lambda m: m.outbox.writes.append((1, [bytes(1 << 20)])))
                await asyncio.sleep(0)
            assert machine.pressed[-1] == (1, True)
            await asyncio.wait_for(driver.stop(), 60)
            assert machine.detached == {1: Reason.STOPPING}

    run(main())


@both_loops
def test_new_certificates_are_shown_to_new_links_only(run: Any, authority: Authority, server: TlsContexts) -> None:
    async def main() -> None:
        async with driving(Echo(), SECURE, tls=server) as (_, address):
            files = authority.files("client-1")
            async with secured(address, files) as (reader, writer):
                first = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
                renewed = authority.files("broker", roles=[Role.BROKER])
                server.take(TlsContexts(server_context(renewed, require_certificate=True)))
                async with secured(address, files) as (_, other):
                    assert other.get_extra_info("ssl_object").getpeercert()["serialNumber"] != first
                writer.write(b"old link")
                assert await reader.readexactly(8) == b"old link"

    run(main())


def test_a_secure_listener_without_a_certificate_is_refused(authority: Authority) -> None:
    async def main() -> None:
        async with driving(Recorder(), None) as (driver, _):
            with pytest.raises(OSError, match="no certificate"):
                await driver.listen("m", SECURE)

    asyncio.run(main())


def test_files_that_are_missing_expired_readable_by_others_or_no_certificates_are_told(
    authority: Authority, tmp_path: Path
) -> None:
    good = authority.files("good")
    assert check_files(good) == []
    assert good.key is not None
    good.key.chmod(0o640)
    assert check_files(good) == [f"tls.key = {good.key}: others can read this key; run: chmod 600 {good.key}"]
    with pytest.raises(ConfigError, match="chmod 600"):
        server_context(good, require_certificate=False)

    late = authority.files("late", days_ago=50, days=10)
    with pytest.raises(ConfigError, match=r"late\.crt: expired on 20.* UTC; issue a new one"):
        server_context(late, require_certificate=False)
    early = authority.files("early", days_ago=-5)
    with pytest.raises(ConfigError, match="not valid before"):
        client_context(early)

    (tmp_path / "junk.crt").write_text("junk")
    with pytest.raises(ConfigError) as caught:
        server_context(TlsFiles(certificate=tmp_path / "junk.crt", key=tmp_path / "none.key"), require_certificate=True)
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 3
    assert "tls.authority" in text
    assert "junk.crt: not a PEM certificate" in text
    assert "none.key: there is no such file" in text


def test_a_key_that_is_missing_or_of_another_certificate_is_told(authority: Authority) -> None:
    one, other = authority.files("one"), authority.files("other")
    with pytest.raises(ConfigError, match="its key is missing"):
        client_context(TlsFiles(certificate=one.certificate, authority=authority.file))
    with pytest.raises(ConfigError, match="do not fit together"):
        client_context(TlsFiles(certificate=one.certificate, key=other.key, authority=authority.file))


@pytest.mark.req("O6", "N14")
def test_only_a_party_that_proves_the_role_is_a_broker_and_it_gets_no_byte_before(authority: Authority) -> None:
    """A certificate that another use would accept does not do: names in CN, clients as servers, other keys."""
    listener = ListenerConfig(port=0, secure=True)
    cases = [
        (authority.odd("localhost", roles=[Role.CLIENT], hosts=()), Reason.CERTIFICATE_UNTRUSTED),  # a name in CN only
        (authority.files("sensor-7"), Reason.CERTIFICATE_UNTRUSTED),  # not for servers
        (authority.odd("sensor-8", roles=[Role.CLIENT, Role.ADMIN]), Reason.ROLE_MISSING),
        (authority.odd("tdn-1", roles=[Role.DIRECTORY]), Reason.ROLE_MISSING),
        (authority.odd("b-1", purposes=()), Reason.CERTIFICATE_MALFORMED),
        (authority.odd("b-2", rsa_key=True), Reason.CERTIFICATE_MALFORMED),
        (authority.odd("b-3"), None),
    ]

    async def main() -> None:
        for files, reason in cases:
            machine, there = Recorder(), Recorder()
            theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            theirs.load_cert_chain(str(files.certificate), str(files.key))
            tls = TlsContexts(client=client_context(TlsFiles(authority=authority.file)))
            async with (
                driving(there, listener, tls=TlsContexts(theirs)) as (_, address),
                driving(machine, None, tls=tls) as (driver, _),
            ):
                dial = Dial("localhost", address[1], secure=True)
                driver.tell("m", lambda m, dial=dial: m.outbox.dial(dial))
                await until(lambda machine=machine: machine.results or machine.peers)
                assert machine.results == ([] if reason is None else [(1, reason)]), files
                assert len(machine.peers) == (reason is None)
                assert not any(there.received.values())

    LOOPS[0](main())


@pytest.mark.req("O6")
def test_tls_proves_nobody_by_a_certificate_that_signatures_would_not_accept(
    authority: Authority, server: TlsContexts
) -> None:
    cases = [
        authority.odd("no-purpose", roles=[Role.CLIENT], purposes=()),
        authority.odd("rsa", roles=[Role.CLIENT], rsa_key=True),
        authority.files("good"),
    ]

    async def main() -> None:
        machine = Echo()
        async with driving(machine, SECURE, tls=server) as (_, address):
            for number, files in enumerate(cases, 1):
                async with secured(address, files) as (reader, writer):
                    writer.write(b"hello")
                    await reader.readexactly(5)
                peer = machine.peers[number]
                assert peer.serial
                assert (peer.identity is None) == (files is not cases[-1])

    LOOPS[0](main())
