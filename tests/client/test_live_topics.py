"""Topics over real brokers: what a program sees of creating, encrypting and revoking."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from msgspec import structs

import heliograph
from heliograph.cli.network_processes import NetworkProcesses
from heliograph.cli.network_secure import environment, secure_url
from heliograph.discovery.topics.encryption import TopicKey
from heliograph.discovery.topics.handover import KeyOffer
from heliograph.errors import Reason, RefusedError
from heliograph.live.topic_desk import chain_of
from heliograph.topology.process_network import generated
from tests.cli.processes import COMMAND

PATIENCE_S = 100.0


def connect(network: NetworkProcesses, person: str, url: str = "") -> Any:
    shown = environment(network.folder, network.secure_url, person)
    return heliograph.connect(
        url or network.secure_url,
        authority=shown["HELIOGRAPH_AUTHORITY"],
        certificate=shown["HELIOGRAPH_CERTIFICATE"],
        key=shown["HELIOGRAPH_KEY"],
    )


def certificate(network: NetworkProcesses, person: str) -> bytes:
    return Path(environment(network.folder, network.secure_url, person)["HELIOGRAPH_CERTIFICATE"]).read_bytes()


@pytest.mark.req("T11", "T12")
def test_a_revoked_grant_changes_the_key_and_other_holders_get_the_new_one_also_by_delegation(tmp_path: Path) -> None:
    async def play(network: NetworkProcesses) -> None:
        people = ("alice", "bob", "admin")
        async with (
            connect(network, "alice") as alice,
            connect(network, "bob") as bob,
            connect(network, "admin") as third,
        ):
            topic = await alice.create_topic("plant/secret", encrypted=True)
            await alice.use_topic(topic)
            alices, bobs, thirds = (certificate(network, person) for person in people)
            kept = alice.grant_topic(topic, "bob", subscribe=True, delegate=True, certificate=bobs)
            revoked = alice.grant_topic(topic, "alice", subscribe=True, certificate=alices)
            await bob.use_topic(kept)
            await third.use_topic(bob.grant_topic(topic, "admin", subscribe=True, using=kept, certificate=thirds))
            async with bob.subscribe(topic.topic) as heard:
                before = alice.encrypt_event(None, topic.topic, b"21.5")
                await alice.publish(topic.topic, before)
                assert bob.decrypt_event(await anext(aiter(heard))) == b"21.5"
                await alice.revoke_grants(revoked)
                after = alice.encrypt_event(None, topic.topic, b"22")
                await alice.publish(topic.topic, after)
                event = await anext(aiter(heard))
            with pytest.raises(RefusedError):
                alice.decrypt_event(event, alice.topic_key(revoked))
            for holder in (bob, third):  # the third has it from bob, whom alice does not know to have delegated
                while len(holder._desk.epochs.keys(topic.advertisement.id)) < 2:
                    await asyncio.sleep(0.02)
                assert holder.decrypt_event(event) == b"22"
            gone = await alice.create_topic("plant/gone")
            granted = alice.grant_topic(gone, "bob", subscribe=True)
            await bob.use_topic(granted)
            assert await alice.withdraw_topic(gone.topic)
            for who, shown in ((bob, granted), (alice, gone)):
                with pytest.raises(RefusedError) as caught:
                    await who.use_topic(shown)
                assert caught.value.reason is Reason.TOPIC_WITHDRAWN
            held = bob._desk.epochs.newest(topic.advertisement.id)
            await alice.close()  # from here on the owner is away
            late = bob.grant_topic(topic, "admin", subscribe=True, using=kept, certificate=thirds)
            await third.use_topic(late)
            assert third.topic_key(late) == held, "with the owner's statement"
            with pytest.raises(RefusedError, match="topic_key_unsigned"):
                await third.use_topic(structs.replace(late, statement=b""))
            says, false = bob._desk.statements, TopicKey(3, b"x" * 32)
            holder = says.keyring.learn(chain_of(thirds), time_ns())
            with pytest.raises(RefusedError, match="did not take the key"):
                await bob._desk.converse(
                    KeyOffer(says, topic.advertisement.id, false, holder, bytes(32), timeout_ms=500)
                )
            assert third._desk.epochs.newest(topic.advertisement.id) == held, "a delegator cannot replace it"

    async def run() -> None:
        network = NetworkProcesses(generated(1), tmp_path / "topics", bdn=False, secure=True)
        try:
            await network.start(lambda said: None)
            async with asyncio.timeout(PATIENCE_S):
                await play(network)
        finally:
            network.stop(keep_logs=False)

    asyncio.run(run())


@pytest.mark.sweep
@pytest.mark.req("T10")
def test_an_owner_that_returns_answers_for_what_a_command_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELIOGRAPH_STATE_DIR", str(tmp_path / "state"))

    async def command(network: NetworkProcesses, *arguments: str) -> str:
        shown = {**os.environ, **environment(network.folder, network.secure_url, "alice")}
        process = await asyncio.create_subprocess_exec(*COMMAND, *arguments, env=shown, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        assert process.returncode == 0
        return out.decode().strip()

    async def play(network: NetworkProcesses) -> None:
        topic = await command(network, "topic", "create", "plant/hall-3", "--text", "temperature")
        names = [broker.name for broker in network.brokers]
        url = secure_url((network.folder / f"{names[1]}.log").read_text())
        async with connect(network, "alice", url) as earlier:
            gone = await earlier.create_topic("plant/hall-4", text="temperature")
            await earlier.create_topic("plant/hall-5", text="pressure")
        async with connect(network, "alice", url) as alice, connect(network, "bob", url) as bob:
            while len(alice._desk.home.topics) < 3:
                await asyncio.sleep(0.02)
            async with connect(network, "alice", url) as other:
                await other.withdraw_topic(gone)
            network.processes[names[0]].kill()  # its process has the only directory
            found = [one async for one in bob.discover_topics("temperature", timeout=20.0)]
            assert [(one.topic, one.told_by) for one in found] == [(topic, "alice")]
            assert bob.verify_topic(found[0]) == "alice"

    async def run() -> None:
        network = NetworkProcesses(generated(2), tmp_path / "topics", bdn=False, secure=True)
        try:
            await network.start(lambda said: None)
            async with asyncio.timeout(PATIENCE_S):
                await play(network)
        finally:
            network.stop(keep_logs=False)

    asyncio.run(run())
