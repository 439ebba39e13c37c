"""The blocking client: what the asyncio client does not have, and that it has everything else."""

from __future__ import annotations

import asyncio
import inspect
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

import heliograph
from heliograph.errors import ClosedError, RefusedError, UsageError
from heliograph.live.background import background_loop
from heliograph.live.blocking import BlockingIncoming
from heliograph.live.subscription import Incoming
from heliograph.model.publication import Publication
from tests.client.live import LiveBroker, a_broker, on_the_loop, until

pytestmark = pytest.mark.live

PAIRS = [
    (heliograph.Client, heliograph.BlockingClient),
    (heliograph.Subscription, heliograph.BlockingSubscription),
    (Incoming, BlockingIncoming),
]
PROTOCOL = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
SCRIPT_S = 60


def beside_a_broker(test: Callable[[str], None]) -> Callable[[], None]:
    """Run a plain test in a thread, with the address of a real broker."""

    @wraps(test)
    def wrapper() -> None:
        @on_the_loop
        async def run() -> None:
            async with a_broker() as broker:
                await asyncio.to_thread(test, broker.address)

        run()

    del wrapper.__wrapped__  # type: ignore[attr-defined] pytest would ask for the address
    return wrapper


def public(kind: type) -> set[str]:
    names = {name for name in dir(kind) if not name.startswith("_")}
    return names | {PROTOCOL.get(name, name) for name in dir(kind) if name in {*PROTOCOL, *PROTOCOL.values()}}


def options_of(call: Any) -> list[tuple[str, Any, Any]]:
    return [
        (one.name, one.kind, one.default)
        for one in inspect.signature(call).parameters.values()
        if one.name not in {"self", "_options"}
    ]


@pytest.mark.parametrize(("ours", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_faces_have_the_same_names_options_and_docs(ours: type, blocking: type) -> None:
    assert public(ours) == public(blocking)
    for name in sorted(public(ours)):
        if not name.startswith("__") and callable(getattr(ours, name)):
            assert options_of(getattr(ours, name)) == options_of(getattr(blocking, name)), name
            assert inspect.getdoc(getattr(blocking, name)), name
        if isinstance(getattr(ours, name, None), property):
            assert isinstance(getattr(blocking, name), property), name


def test_both_faces_connect_with_the_same_options() -> None:
    assert options_of(heliograph.connect) == options_of(heliograph.connect_blocking)


@beside_a_broker
def test_batches_are_as_large_as_asked_and_end_with_the_subscription(address: str) -> None:
    with heliograph.connect_blocking(address) as client:
        subscription = client.subscribe("a")
        client.publish_batch("a", [b"%d" % number for number in range(10)])
        client.flush()
        assert [one.payload for one in subscription.next_batch(3)] == [b"0", b"1", b"2"]
        with pytest.raises(UsageError):
            subscription.next_batch(0)
        subscription.close()
        assert [int(one.payload) for batch in subscription.batches(4) for one in batch] == list(range(3, 10))
        for ended in (subscription.next, subscription.next_batch):
            with pytest.raises(ClosedError):
                ended(timeout=1)
        with pytest.raises(StopIteration):
            next(subscription)
        with pytest.raises(TimeoutError):
            client.directed().next(timeout=0.01)


@beside_a_broker
def test_threads_share_a_client_and_a_subscription(address: str) -> None:
    heard: list[int] = []

    def read(subscription: heliograph.BlockingSubscription) -> None:
        heard.extend(int(publication.payload) for publication in subscription)

    def write(client: heliograph.BlockingClient, first: int) -> None:
        for number in range(first, first + 50):
            client.publish("a", str(number))

    with heliograph.connect_blocking(address) as client:
        subscription = client.subscribe("a")
        readers = [threading.Thread(target=read, args=(subscription,)) for _ in range(3)]
        writers = [threading.Thread(target=write, args=(client, first)) for first in (0, 50, 100)]
        for thread in (*readers, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        client.flush()
        subscription.close()
        for thread in readers:
            thread.join()
    assert sorted(heard) == list(range(150))


@beside_a_broker
def test_callbacks_have_a_thread_may_use_the_client_and_are_finished_by_drain(address: str) -> None:
    complaints: list[str] = []
    original, threading.excepthook = threading.excepthook, lambda told: complaints.append(repr(told.exc_value))
    heard: list[bytes] = []

    def answer(request: Publication) -> None:
        client.reply(request, request.payload.upper())

    def fail(publication: Publication) -> None:
        heard.append(publication.payload)
        raise ValueError(publication.payload)

    async def never(publication: Publication) -> None:
        raise AssertionError

    try:
        with heliograph.connect_blocking(address) as client:
            client.subscribe("service", callback=answer)
            assert client.request("service", b"hello").payload == b"HELLO"
            client.subscribe("a", callback=fail)
            client.publish_batch("a", [b"1", b"2"])
            with pytest.raises(UsageError, match="plain function"):
                client.subscribe("a", callback=never)
    finally:
        threading.excepthook = original
    assert heard == [b"1", b"2"]
    assert complaints == ["ValueError(b'1')", "ValueError(b'2')"]


@pytest.mark.parametrize("way", ["drain", "close"])
def test_a_callback_may_end_its_own_blocking_client(way: str) -> None:
    @beside_a_broker
    def run(address: str) -> None:
        client = heliograph.connect_blocking(address)
        ended = threading.Event()

        def end(publication: Publication) -> None:
            getattr(client, way)()
            ended.set()

        client.subscribe("a", callback=end)
        client.publish("a", b"the end")
        assert ended.wait(SCRIPT_S)
        assert client.is_closed

    run()


@beside_a_broker
def test_the_background_thread_never_waits_for_itself(address: str) -> None:
    errors: list[str] = []
    told = threading.Event()

    def refused(refused: heliograph.RefusedPublication) -> None:
        try:
            client.flush()
        except UsageError as error:
            errors.append(str(error))
        told.set()

    with heliograph.connect_blocking(address, on_refused=refused) as client:
        client.publish("System/a", b"")
        with pytest.raises(RefusedError):
            client.flush()
        assert told.wait(SCRIPT_S)
    assert "on_refused" in errors[0]


FORK = """
import os, sys, heliograph
client = heliograph.connect_blocking(sys.argv[1])
subscription = client.subscribe("a")
child = os.fork()
if not child:
    for call in (client.flush, client.close, subscription.next, client.drain):
        try:
            call()
        except heliograph.UsageError as error:
            assert "process %d" % os.getppid() in str(error), error
        else:
            raise AssertionError(call)
    with heliograph.connect_blocking(sys.argv[1]) as own:
        own.publish("a", "from the child")
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(subscription.next(timeout=30).payload.decode())
client.publish("a", "from the parent")
print(subscription.next(timeout=30).payload.decode())
"""
POOL = """
import sys, threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import heliograph
def work(number):
    with heliograph.connect_blocking(sys.argv[1]) as client:
        client.publish("a", str(number))
with heliograph.connect_blocking(sys.argv[1]) as client, client.subscribe("a") as subscription:
    with ProcessPoolExecutor(2, get_context("fork")) as pool:
        list(pool.map(work, range(6)))
    print(sorted(int(subscription.next(timeout=30).payload) for _ in range(6)))
"""
EXIT = """
import sys, heliograph
client = heliograph.connect_blocking(sys.argv[1])
client.subscribe("b", callback=print)
client.publish_batch("a", ["%d" % number for number in range(1000)])
"""
WAIT = """
import sys, heliograph
with heliograph.connect_blocking(sys.argv[1]) as client, client.subscribe("a") as subscription:
    print("waiting", flush=True)
    try:
        for publication in subscription:
            print("unexpected", flush=True)
    except KeyboardInterrupt:
        client.publish("a", "still there")
        print(subscription.next(timeout=30).payload.decode())
"""


async def start(script: str, broker: LiveBroker) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", script, broker.address),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def end(process: asyncio.subprocess.Process) -> str:
    out, err = await process.communicate()
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode()


@on_the_loop
async def test_a_forked_child_connects_anew_and_leaves_its_parent_alone() -> None:
    async with a_broker() as broker:
        assert await end(await start(FORK, broker)) == "from the child\nfrom the parent\n"


@on_the_loop
async def test_workers_of_a_process_pool_have_clients_of_their_own() -> None:
    async with a_broker() as broker:
        assert await end(await start(POOL, broker)) == "[0, 1, 2, 3, 4, 5]\n"


@on_the_loop
async def test_a_program_that_just_ends_has_published_everything_and_said_goodbye() -> None:
    async with a_broker() as broker, heliograph.connect(broker.address) as reader:
        subscription = await reader.subscribe("a")
        assert await end(await start(EXIT, broker)) == ""
        assert [int((await subscription.next()).payload) for _ in range(1_000)] == list(range(1_000))
        await until(lambda: broker.report()["sessions"] == 1)


@on_the_loop
async def test_an_interrupt_ends_the_wait_and_not_the_connection() -> None:
    async with a_broker() as broker:
        process = await start(WAIT, broker)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"waiting\n"
        await asyncio.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert await end(process) == "still there\n"


@beside_a_broker
def test_an_interrupted_wait_loses_nothing(address: str) -> None:
    """A call that is given up between the loop and its thread leaves what it fetched to the next one."""
    with heliograph.connect_blocking(address) as client:
        subscription = client.subscribe("a")
        client.publish("a", b"1")
        client.flush()
        background_loop().run(subscription._bring(None, 1))  # fetched, and the thread that waited is gone
        assert subscription.waiting == 1
        assert subscription.next().payload == b"1"
