"""One PostgreSQL per process that runs tests, started when the first of them wants it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.vaults.postgres import NoServerError, Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    try:
        server = Server()
    except NoServerError as error:
        pytest.skip(str(error))
    yield server
    server.end()
