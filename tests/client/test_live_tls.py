"""The client over TLS: who is who is proven on both sides, and a bad certificate is an error at once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import heliograph
from heliograph.errors import NotConnectedError, Reason, RefusedError
from heliograph.live.tls import TlsContexts, TlsFiles, client_context, server_context
from heliograph.model.identity import Role
from heliograph.trust.certificates import Pair, issue, make_authority
from tests.client.live import a_broker, a_network, on_the_loop, until

pytestmark = [pytest.mark.live, pytest.mark.req("N14")]


@dataclass(frozen=True)
class Files:
    """An authority with a broker's and a client's certificate, and one that nobody trusts."""

    authority: Path
    broker: TlsFiles
    certificate: Path
    key: Path
    stranger: Path
    foreign: TlsFiles  # issued by the stranger


def keep(folder: Path, name: str, pair: Pair) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(pair.certificate)
    key.touch(mode=0o600)
    key.write_bytes(pair.key)
    return certificate, key


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder, now = tmp_path_factory.mktemp("tls"), datetime.now(UTC)
    authority = make_authority("house", now)
    trusted, _ = keep(folder, "authority", authority)
    unknown = make_authority("stranger", now)
    stranger, _ = keep(folder, "stranger", unknown)
    spy = keep(folder, "spy", issue(unknown, "spy", [Role.CLIENT], [], now))
    broker = keep(folder, "broker", issue(authority, "broker", [Role.BROKER], ["localhost"], now))
    client = keep(folder, "client", issue(authority, "sensor-7", [Role.CLIENT], [], now))
    theirs = TlsFiles(certificate=broker[0], key=broker[1], authority=trusted)
    return Files(trusted, theirs, *client, stranger, TlsFiles(certificate=spy[0], key=spy[1]))


@on_the_loop
async def test_both_sides_prove_who_they_are(files: Files) -> None:
    tls = TlsContexts(server_context(files.broker, require_certificate=True))
    async with a_broker(tls=tls, secure=True, auth="certificate") as broker:
        own = {"certificate": files.certificate, "key": files.key}
        async with heliograph.connect(broker.address, authority=files.authority, **own) as client:
            assert (client.entity, client.roles) == ("sensor-7", ("client",))
            async with client.subscribe("a") as subscription:
                await client.publish("a", bytes(300_000))
                assert len((await subscription.next()).payload) == 300_000


@pytest.mark.req("O6")
@on_the_loop
async def test_a_broker_that_is_not_trusted_gets_nothing_and_is_not_tried_again(files: Files) -> None:
    tls = TlsContexts(server_context(files.broker, require_certificate=False))
    async with a_broker(tls=tls, secure=True) as broker:
        with pytest.raises(NotConnectedError) as caught:
            await heliograph.connect(broker.address, authority=files.stranger, token="hunter2")
        assert caught.value.reason is Reason.CERTIFICATE_UNTRUSTED


@on_the_loop
async def test_a_broker_under_another_name_is_not_trusted_unless_that_name_is_expected(files: Files) -> None:
    tls = TlsContexts(server_context(files.broker, require_certificate=False))
    async with a_broker(tls=tls, secure=True) as broker:
        address = broker.address.replace("localhost", "127.0.0.1")
        with pytest.raises(NotConnectedError) as caught:
            await heliograph.connect(address, authority=files.authority)
        assert caught.value.reason is Reason.CERTIFICATE_UNTRUSTED
        async with heliograph.connect(address, authority=files.authority, server_name="localhost") as client:
            assert client.is_connected


@on_the_loop
async def test_a_client_without_the_certificate_that_is_asked_for_hears_so(files: Files) -> None:
    tls = TlsContexts(server_context(files.broker, require_certificate=False))
    async with a_broker(tls=tls, secure=True, auth="certificate") as broker:
        with pytest.raises(RefusedError) as caught:
            await heliograph.connect(broker.address, authority=files.authority)
        assert caught.value.reason is Reason.CREDENTIAL_MISSING


@on_the_loop
async def test_a_plain_broker_does_not_do_for_a_client_that_wants_tls(files: Files) -> None:
    async with a_broker() as broker:
        address = f"heliographs://localhost:{broker.port}"
        with pytest.raises(NotConnectedError):
            await heliograph.connect(address, authority=files.authority, timeout=0)


@pytest.mark.req("O6")
@on_the_loop
async def test_a_client_whose_certificate_is_missing_or_not_trusted_hears_it_from_the_handshake(files: Files) -> None:
    tls = TlsContexts(server_context(files.broker, require_certificate=True))
    cases = [
        ({}, Reason.CREDENTIAL_MISSING),
        ({"certificate": files.foreign.certificate, "key": files.foreign.key}, Reason.CERTIFICATE_UNTRUSTED),
    ]
    async with a_broker(tls=tls, secure=True, auth="certificate") as broker:
        for own, reason in cases:
            with pytest.raises(NotConnectedError) as caught:
                await heliograph.connect(broker.address, authority=files.authority, timeout=0, **own)
            assert caught.value.reason is reason
            await until(lambda reason=reason: broker.report("overview")["refused"].get(reason.word) == 1)


@pytest.mark.req("O6")
@on_the_loop
async def test_a_link_ends_with_its_certificate_and_the_files_are_read_again(tmp_path: Path) -> None:
    """One client's certificate is renewed in time, the other's is not."""
    now = datetime.now(UTC)
    authority = make_authority("house", now - timedelta(days=2))
    trusted, _ = keep(tmp_path, "authority", authority)
    broker_files = keep(tmp_path, "broker", issue(authority, "broker", [Role.BROKER], ["localhost"], now))
    end = now + timedelta(seconds=4)
    soon = end - timedelta(days=1)
    old = {name: issue(authority, name, [Role.CLIENT], [], soon, 1) for name in ("ann", "bob")}
    pairs = {name: keep(tmp_path, name, pair) for name, pair in old.items()}
    theirs = TlsFiles(certificate=broker_files[0], key=broker_files[1], authority=trusted)
    tls = TlsContexts(server_context(theirs, require_certificate=True))
    async with a_broker(tls=tls, secure=True, auth="certificate") as broker:
        clients = {
            name: await heliograph.connect(broker.address, authority=trusted, certificate=certificate, key=key)
            for name, (certificate, key) in pairs.items()
        }
        keep(tmp_path, "ann", issue(authority, "ann", [Role.CLIENT], [], now))

        await until(lambda: broker.report("overview")["refused"].get("certificate_expired", 0) >= 2)
        await until(lambda: datetime.now(UTC) > end)  # until then bob may come again
        await until(lambda: clients["ann"].is_connected and not clients["bob"].is_connected)
        await clients["ann"].publish("a", b"still here")
        await clients["ann"].flush()
        with pytest.raises(NotConnectedError) as caught:
            await clients["bob"].flush()
        assert caught.value.reason is Reason.CERTIFICATE_EXPIRED
        for client in clients.values():
            await client.close()


@pytest.mark.req("N8", "O6")
@on_the_loop
async def test_a_move_stays_with_tls_and_with_who_one_is(files: Files) -> None:
    tls = TlsContexts(server_context(files.broker, require_certificate=True), client_context(files.broker))
    async with a_network({"a": [], "b": ["a"]}, tls, auth="certificate") as brokers:
        own = {"certificate": files.certificate, "key": files.key}
        async with heliograph.connect(brokers["a"].address, authority=files.authority, **own) as client:
            subscription = await client.subscribe("t")
            brokers["a"].drain(20_000)
            await until(lambda: client.report()["roamed"] == 1)
            assert client.report()["target"] == brokers["b"].address
            assert brokers["b"].address.startswith("heliographs://")
            assert client.entity == "sensor-7"
            await client.publish("t", b"over there")
            assert (await subscription.next(timeout=60)).payload == b"over there"
