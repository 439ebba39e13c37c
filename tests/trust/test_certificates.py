"""Certificates: accepted by OpenSSL, Python's ssl and the verifier of cryptography; refused when they should be."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from heliograph.errors import UsageError
from heliograph.model.identity import Identity, Role
from heliograph.trust.certificate_names import identity_of, uris_of
from heliograph.trust.certificates import LOCAL_HOSTS, Pair, facts_of, issue, make_authority

NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def authority() -> Pair:
    return make_authority("test-authority", NOW)


@pytest.fixture(scope="module")
def broker(authority: Pair) -> Pair:
    return issue(authority, "broker-1", [Role.BROKER], [*LOCAL_HOSTS, "broker.example.org"], NOW)


@pytest.fixture(scope="module")
def client(authority: Pair) -> Pair:
    return issue(authority, "sensor-7", [Role.CLIENT, Role.ADMIN], [], NOW)


def written(folder: Path, name: str, pair: Pair) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return certificate, key


def context(side: int, folder: Path, name: str, pair: Pair, authority: Pair) -> ssl.SSLContext:
    made = ssl.SSLContext(side)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(*written(folder, name, pair))
    made.load_verify_locations(cadata=authority.certificate.decode())
    return made


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A whole TLS handshake in memory; what a side refuses is raised."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not waiting:
            return ends[0], ends[1]
    raise AssertionError("the handshake does not end")


@pytest.mark.req("N14")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "broker.example.org"])
def test_a_mutual_handshake_succeeds_and_shows_both_identities(
    host: str, tmp_path: Path, authority: Pair, broker: Pair, client: Pair
) -> None:
    dialled, accepted = shake_hands(
        context(ssl.PROTOCOL_TLS_SERVER, tmp_path, "broker", broker, authority),
        context(ssl.PROTOCOL_TLS_CLIENT, tmp_path, "client", client, authority),
        host,
    )

    def seen(end: ssl.SSLObject) -> Identity | None:
        names = (end.getpeercert() or {}).get("subjectAltName", ())
        return identity_of(str(value) for kind, value in names if kind == "URI")

    assert dialled.version() == "TLSv1.3"
    assert seen(dialled) == Identity("broker-1", (Role.BROKER,), "certificate")
    assert seen(accepted) == Identity("sensor-7", (Role.CLIENT, Role.ADMIN), "certificate")


def test_a_broker_is_refused_under_a_name_that_is_not_its_own(
    tmp_path: Path, authority: Pair, broker: Pair, client: Pair
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'elsewhere\.example\.org'"):
        shake_hands(
            context(ssl.PROTOCOL_TLS_SERVER, tmp_path, "broker", broker, authority),
            context(ssl.PROTOCOL_TLS_CLIENT, tmp_path, "client", client, authority),
            "elsewhere.example.org",
        )


@pytest.mark.req("O6")
def test_another_authoritys_client_is_refused(tmp_path: Path, authority: Pair, broker: Pair) -> None:
    stranger = issue(make_authority("test-authority", NOW), "sensor-7", [Role.CLIENT], [], NOW)
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        shake_hands(
            context(ssl.PROTOCOL_TLS_SERVER, tmp_path, "broker", broker, authority),
            context(ssl.PROTOCOL_TLS_CLIENT, tmp_path, "client", stranger, authority),
            "localhost",
        )


@pytest.mark.req("O6")
def test_an_expired_client_is_refused(tmp_path: Path, broker: Pair) -> None:
    old = make_authority("old", NOW - timedelta(days=100))
    expired = issue(old, "sensor-7", [Role.CLIENT], [], NOW - timedelta(days=50), days=10)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(
            context(ssl.PROTOCOL_TLS_SERVER, tmp_path, "broker", issue(old, "b", [Role.BROKER], LOCAL_HOSTS, NOW), old),
            context(ssl.PROTOCOL_TLS_CLIENT, tmp_path, "client", expired, old),
            "localhost",
        )


def test_the_chain_verifier_accepts_broker_and_client(authority: Pair, broker: Pair, client: Pair) -> None:
    policy = PolicyBuilder().store(Store([x509.load_pem_x509_certificate(authority.certificate)])).time(NOW)
    leaf = x509.load_pem_x509_certificate(client.certificate)
    server = x509.load_pem_x509_certificate(broker.certificate)

    assert policy.build_client_verifier().verify(leaf, []).chain[0] == leaf
    assert policy.build_server_verifier(x509.DNSName("localhost")).verify(server, [])[0] == server


def test_the_chain_verifier_refuses_a_certificate_signed_by_a_leaf(authority: Pair, client: Pair) -> None:
    """A client cannot make itself an authority."""
    with pytest.raises(UsageError, match="not an authority"):
        issue(client, "sensor-8", [Role.ADMIN], [], NOW)
    policy = PolicyBuilder().store(Store([x509.load_pem_x509_certificate(authority.certificate)])).time(NOW)
    forged = issue(make_authority("sensor-7", NOW), "sensor-8", [Role.ADMIN], [], NOW)
    with pytest.raises(VerificationError):
        policy.build_client_verifier().verify(
            x509.load_pem_x509_certificate(forged.certificate), [x509.load_pem_x509_certificate(client.certificate)]
        )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command is not installed")
def test_openssl_accepts_the_chain_in_strict_mode(tmp_path: Path, authority: Pair, broker: Pair, client: Pair) -> None:
    root, _ = written(tmp_path, "authority", authority)
    for name, pair, purpose in (("broker", broker, "sslserver"), ("client", client, "sslclient")):
        leaf, _ = written(tmp_path, name, pair)
        command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", str(root), str(leaf)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_keys_are_p256(broker: Pair) -> None:
    key = x509.load_pem_x509_certificate(broker.certificate).public_key()

    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)


def test_a_certificate_never_outlives_its_authority() -> None:
    short = make_authority("short", NOW, days=30)

    facts = facts_of(issue(short, "sensor-7", [Role.CLIENT], [], NOW, days=90).certificate)

    assert facts.ends == facts_of(short.certificate).ends


def test_an_expired_authority_issues_nothing() -> None:
    old = make_authority("old", NOW - timedelta(days=20), days=10)

    with pytest.raises(UsageError, match="expired"):
        issue(old, "sensor-7", [Role.CLIENT], [], NOW)


def test_the_facts_are_those_that_were_asked_for(authority: Pair, broker: Pair) -> None:
    facts, root = facts_of(broker.certificate), facts_of(authority.certificate)

    assert facts.identity == Identity("broker-1", (Role.BROKER,), "certificate")
    assert facts.hosts == ("localhost", "broker.example.org", "127.0.0.1", "::1")
    assert facts.issuer == root.subject == root.issuer == "CN=test-authority"
    assert (facts.authority, root.authority, root.identity) == (False, True, None)
    assert facts.ends == NOW + timedelta(days=90)
    assert facts.fingerprint != root.fingerprint


def test_a_long_entity_id_is_kept_whole_in_its_uri(authority: Pair) -> None:
    entity = "e" * 128

    facts = facts_of(issue(authority, entity, [Role.CLIENT], [], NOW).certificate)

    assert facts.identity == Identity(entity, (Role.CLIENT,), "certificate")


@pytest.mark.parametrize(
    ("entity", "roles", "hosts", "days"),
    [
        ("not valid", [Role.CLIENT], [], 1),
        ("../etc", [Role.CLIENT], [], 1),
        ("a", [], [], 1),
        ("a", [Role.BROKER], ["host with spaces"], 1),
        ("a", [Role.BROKER], ["-x"], 1),
        ("a", [Role.BROKER], ["ö.example.org"], 1),
        ("a", [Role.CLIENT], [], 0),
        ("a", [Role.CLIENT], [], 1_000_000_000),
    ],
)
def test_nonsense_is_refused(authority: Pair, entity: str, roles: list[Role], hosts: list[str], days: int) -> None:
    with pytest.raises(UsageError):
        issue(authority, entity, roles, hosts, NOW, days)


def test_a_key_that_is_not_the_authoritys_is_refused(authority: Pair, client: Pair) -> None:
    with pytest.raises(UsageError, match="does not belong"):
        issue(Pair(authority.certificate, client.key), "a", [Role.CLIENT], [], NOW)
    with pytest.raises(UsageError, match="not a plain PEM private key"):
        issue(Pair(authority.certificate, b"rubbish"), "a", [Role.CLIENT], [], NOW)


def test_a_key_does_not_show_in_a_repr(client: Pair) -> None:
    assert "PRIVATE" not in repr(client)


@pytest.mark.parametrize(
    "uris",
    [
        [],
        ["heliograph:role:client"],
        ["heliograph:entity:a"],
        ["heliograph:entity:a", "heliograph:entity:b", "heliograph:role:client"],
        ["heliograph:entity:a", "heliograph:role:king"],
        ["heliograph:entity:a/b", "heliograph:role:client"],
        ["https://example.org"],
    ],
)
def test_names_that_prove_nobody(uris: list[str]) -> None:
    assert identity_of(uris) is None


def test_a_role_of_a_later_version_does_not_hide_the_ones_we_know() -> None:
    assert identity_of([*uris_of("a", [Role.CLIENT]), "heliograph:role:oracle"]) == Identity(
        "a", (Role.CLIENT,), "certificate"
    )
