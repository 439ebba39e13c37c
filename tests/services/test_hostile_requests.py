"""A few bytes that ended a broker, or used up a link, now cost one request."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.model.identity import Role
from tests.live.certificates import Authority
from tests.live.processes import Process
from tests.services.office import Office
from tests.wire.stdlib_client import SERVICE, StdlibClient, pack

pytestmark = pytest.mark.req("O6", "N18")


@pytest.mark.parametrize("name", ["tdn", "monitor", "bdn", "store"])
def test_a_service_without_requests_refuses_as_many_as_one_likes(name: str) -> None:
    """It never answered: 64 requests used up a link."""
    office = Office()
    numbers = [office.ask(name, b"{}") for _ in range(65)]
    assert [office.outcome(number) for number in numbers] == ["service_unknown"] * 65
    assert office.outcome(office.ask("admin", b'{"do":"report"}')) == ""


def test_what_a_client_sends_is_not_decoded_a_second_time_on_its_way_to_a_store() -> None:
    """86 bytes ended the process: the first decoder skipped the number, the second did not."""
    office = Office()
    store = office.store.encode()
    assert office.outcome(office.ask("stores", b'{"do":"attach","store":"%b"}' % store)) == ""
    for value in (b"1e999", b'"\xff"', b"9" * 4_400, b'"\\ud800"'):
        body = b'{"do":"attach","store":"%b","x":%b}' % (store, value)
        assert office.outcome(office.ask("stores", body)) in ("", "body_malformed")
    assert office.outcome(office.ask("stores", b'{"do":"attach","store":"%b"}' % store)) == ""


@pytest.mark.parametrize("field", ["chains", "bundle", "statement"])
@pytest.mark.parametrize("value", ["5", "null", "true", '"x"', "{}", "[5]"])
def test_a_revocation_with_a_field_of_another_type_is_refused(field: str, value: str) -> None:
    """75 bytes ended the process, when ``chains`` was a list."""
    office = Office()
    body = b'{"do":"revoke","statement":"","%b":%b}' % (field.encode(), value.encode())
    assert office.outcome(office.ask("rights", body)) in ("body_malformed", "grant_invalid")
    assert office.outcome(office.ask("rights", b'{"do":"lists"}')) == ""


@pytest.mark.live
def test_a_broker_process_survives_them(tmp_path: Path) -> None:
    files = Authority(tmp_path).files("b1", roles=(Role.BROKER,))
    settings = tmp_path / "heliograph.toml"
    settings.write_text(
        f'[tls]\ncertificate = "{files.certificate}"\nkey = "{files.key}"\nauthority = "{files.authority}"\n'
        f'[store]\nenabled = true\nplace = "{tmp_path / "stores"}"\n[discovery]\nenabled = false\n'
    )
    options = ("--listen", "127.0.0.1:0", "--log-format", "json", "--config", str(settings))
    with Process(tmp_path, *options) as broker:
        client = StdlibClient("127.0.0.1", broker.port)
        client.hello()
        store = client.ask("stores", {"do": "find"})["stores"][0]["store"].encode()
        for number, (name, body) in enumerate(
            (
                (b"stores", b'{"do":"attach","store":"%b","x":1e999}' % store),
                (b"rights", b'{"do":"revoke","statement":"","chains":5}'),
            ),
            start=1_000,
        ):
            client.send(pack(SERVICE, topic=name, payload=body, sequence=number))
            assert client.next(SERVICE).sequence == number
        assert client.ask("stores", {"do": "find"})["stores"]
        assert broker.process.poll() is None
