"""Every example runs as it stands, in a process of its own, against a real broker."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from heliograph.broker.config import BrokerConfig
from heliograph.stores.config import StoreConfig
from tests.client.live import a_broker, on_the_loop

pytestmark = pytest.mark.live

EXAMPLES = Path(__file__).parents[2] / "examples"
TOKEN = "of this run"
SAYS = {
    "publish_subscribe.py": "sensors/kitchen/temperature 21.5 celsius\n",
    "ask_for_content.py": "hosts/h3 this one 200\n",
    "batch.py": "10000 readings, the last one 9999\n",
    "blocking.py": "sensors/kitchen 21.5 celsius\nsensors/cellar 8.5\nsensors/cellar 8.4\nsensors/cellar 8.3\n",
    "callback.py": "done: wash\ndone: dry\ndone: fold\n",
    "request_reply.py": "HELLO\nresponders_missing: no subscriber answers on services/nobody\n",
    "worker_group.py": "done: ['job 0', 'job 3', 'job 6']\n",
    "slow_consumer.py": "lost 990, kept 990 to 999\n",
    "admin_report.py": "broker: broker\n",
}
ELSEWHERE = (
    "pipeline.py",  # it needs Spark and a store: tests/pipeline/test_source.py
    "durable.py",  # these need a store, a directory and all services: tests/docs/test_pages_walked.py
    "find_a_broker.py",
    "resources.py",
    "topics.py",  # it needs certificates and a topic directory: tests/docs/test_topics.py
)


async def run_example(name: str, *arguments: str, **environment: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(EXAMPLES / name),
        *arguments,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("name", [path.name for path in sorted(EXAMPLES.glob("*.py")) if path.name not in ELSEWHERE])
@on_the_loop
async def test_an_example_does_what_it_says(name: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    config = replace(BrokerConfig(), local_digest=sha256(TOKEN.encode()).digest())
    async with a_broker(config) as broker:
        environment = {"HELIOGRAPH_TOKEN_FILE": str(token)} if name == "admin_report.py" else {}
        code, out, err = await run_example(name, broker.address, **environment)
    assert (code, err) == (0, "")
    assert SAYS[name] in out


@pytest.mark.req("N19")
@on_the_loop
async def test_the_example_of_a_request_works_beside_a_store(tmp_path: Path) -> None:
    async with a_broker(services=[StoreConfig(enabled=True, place=str(tmp_path))]) as broker:
        code, out, err = await run_example("request_reply.py", broker.address)
    assert (code, err) == (0, "")
    assert out == SAYS["request_reply.py"]


@on_the_loop
async def test_without_a_token_the_report_is_refused_in_words() -> None:
    async with a_broker() as broker:
        code, _, err = await run_example("admin_report.py", HELIOGRAPH_URL=broker.address)
    assert code == 1
    assert err.startswith("anonymous is no administrator here: ask_denied")
