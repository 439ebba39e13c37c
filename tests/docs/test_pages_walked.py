"""Every block of README and of the how-to pages that a reader would copy does what its page says.

Pages with a test of their own: ask-for-content, create-and-find-topics, extend (in this folder), from-broker-to-sql
(tests/pipeline). First-steps and the README's part with one broker are walked in every run, the rest in the sweep.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.house import ROOT
from tests.docs.walk import Terminal, Walk, walking, why_not

pytestmark = [
    pytest.mark.live,
    pytest.mark.req("O2"),
    pytest.mark.skipif(bool(why_not()), reason=f"pages are walked in namespaces: {why_not()}"),
]
HOW_TO = "docs/how-to"
RESOURCES = """# the scenario around the resources of simulate-a-network.md
scenario = { name = "r", duration_s = 5, settle_s = 3 }
checks = { names = ["resources"] }
[topology]
links = [["a", "b"], ["b", "c"]]
brokers = { a = {}, b = {}, c = {} }
"""
README_NETWORKS = 8  # its last blocks, which start networks
CONNECTED = "client = await heliograph.connect()"


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    with walking(tmp_path) as reader:
        yield reader


def ended(walk: Walk, terminals: list[Terminal]) -> str:
    """What they printed, when all of them have ended."""
    for terminal in terminals:
        walk.ended(terminal)
    return "".join(terminal.text for terminal in terminals)


def ports(walk: Walk, *options: str) -> dict[str, int]:
    """The port of each broker of the network that runs here."""
    shown = json.loads(walk.command(" ".join(["heliograph network map --json", *options])).text)
    return {broker["name"]: int(broker["address"].rpartition(":")[2]) for broker in shown["brokers"]}


@pytest.mark.req("O1")
def test_readme(walk: Walk) -> None:
    page = walk.page("README.md")
    (broker,) = page.next()
    (subscriber,) = page.next()
    page.next()
    subscriber.shows(r"^sensors/kitchen 21\.5$|\nsensors/kitchen 21\.5\n")
    subscriber.interrupt()

    *_, found, watch, _, _ = page.next()
    assert re.search(r"m2.*\n.*m1", found.text), found.text
    watch.shows("appeared.*m2")
    watch.shows("vanished.*m2")
    watch.interrupt()

    assert ended(walk, page.next()) == "sensors/kitchen 21.5\n"
    assert ended(walk, page.next()) == "sensors/kitchen 21.5\n"
    broker.interrupt()
    assert len(page.blocks) == README_NETWORKS


@pytest.mark.sweep
def test_readme_with_networks(walk: Walk) -> None:
    page = walk.page("README.md")
    del page.blocks[:-README_NETWORKS]  # test_readme runs them

    page.next()  # network up 9, map
    walk.names |= {f"PORT_OF_{name.upper()}": str(port) for name, port in ports(walk).items()}
    far, _, trace = page.next()
    far.shows(r"sensors/kitchen 21\.5")
    assert "→" in trace.text
    far.interrupt()
    page.next()  # down

    *_, explained = page.next()
    assert "heliograph://127.0.0.1:" in explained.text
    conditional, _ = page.next()
    conditional.shows("hosts/h1 free")
    conditional.interrupt()
    page.next()  # down

    _, durable, _, replayed, stores = page.next()
    durable.shows("orders/7 3 lamps")
    assert "orders/7 3 lamps" in replayed.text
    assert "store" in stores.text
    durable.interrupt()
    page.next()
    page.done()


def test_first_steps(walk: Walk) -> None:
    page = walk.page(f"{HOW_TO}/first-steps.md")
    page.take("sh")  # the installation, which these tests run in
    (broker,), (sensors,), _ = page.next(), page.next(), page.next()
    sensors.shows(r"sensors/kitchen 21\.5")

    counter = walk.start(page.take("console").removeprefix("$ ").strip())
    counter.shows("subscribed")
    page.next()
    walk.ended(counter)
    assert [json.loads(line)["payload"] for line in counter.text.splitlines() if line.startswith("{")] == [
        str(number) for number in range(1, 11)
    ]

    (second,), (pipe,) = page.next(), page.next()
    pipe.shows("subscribed")
    far = walk.command("heliograph subscribe 'sensors/#' --url heliograph://127.0.0.1:4727")
    walk.command("heliograph publish sensors/kitchen 22")
    far.shows("sensors/kitchen 22")
    for terminal in (pipe, far, second):
        terminal.interrupt()

    assert "sensors/kitchen b'21.5' {'unit': 'celsius'}" in ended(walk, page.next())
    assert "sensors/kitchen b'21.5'" in ended(walk, page.next())
    status, links, subscriptions, _ = page.next()
    assert "links" in status.text
    assert "heliograph subscribe" in links.text
    assert any(entry["filter"] == "sensors/#" for entry in json.loads(subscriptions.text))
    assert broker.process.wait(60) == 0
    page.done()


@pytest.mark.sweep
def test_examples_that_need_a_network(walk: Walk) -> None:
    walk.command("heliograph network up 1 --stores 1 --detach --name shop")
    folder = ROOT / "examples"
    said = {name: walk.command(f"{sys.executable} {folder / name}.py") for name in ("durable", "find_a_broker")}
    walk.names["PORT"] = str(ports(walk)["a1"])
    said["resources"] = walk.command(f"{sys.executable} {folder}/resources.py heliograph://127.0.0.1:PORT")
    assert re.fullmatch(r"(\d+ orders/\d \d lamps\n){3}", said["durable"].text)
    assert "in shop\n" in said["find_a_broker"].text
    assert re.fullmatch(r"found m1 at .* with \{'memory': 16\}\nappeared\nstopped\n", said["resources"].text)
    walk.command("heliograph network down")


@pytest.mark.sweep
def test_discover_resources(walk: Walk) -> None:
    page = walk.page(f"{HOW_TO}/discover-resources.md")
    walk.command("heliograph broker run")
    _, found, watch, _, _ = page.next()
    assert "m1" in found.text
    watch.shows("appeared.*m1")
    watch.shows("(stopped|vanished).*m1")
    watch.interrupt()
    (program,) = page.next()
    program.shows(r"m1 .* \{'load': 1\.5, 'memory': 4\}|m1 .*'memory': 4")
    program.shows("appeared m1")
    page.done()
    program.process.kill()


@pytest.mark.sweep
def test_find_a_broker(walk: Walk) -> None:
    page = walk.page(f"{HOW_TO}/find-a-broker.md")
    walk.command("heliograph network up 2 --detach --name first")
    kind, text = page.blocks[0]
    (program,) = page.next()
    program.shows(r"(a\d) \1: chosen")  # the second if the machine is busy
    walk.ended(program)
    walk.command("heliograph network down")
    assert kind == "python"
    broker = walk.command("heliograph broker run")  # on the default port: now nothing is searched for
    again = walk.program(text)
    again.shows("broker on the default port")
    walk.ended(again)
    broker.interrupt()
    *_, watch = page.next()
    watch.shows("127.0.0.1")
    (subscriber,) = page.next()
    walk.command("heliograph publish sensors/1 x --network plant")
    subscriber.shows("sensors/1 x")
    (options,) = page.next()
    walk.ended(options)
    for terminal in (watch, subscriber):
        terminal.interrupt()
    walk.command("heliograph network down")
    page.done()


@pytest.mark.sweep
def test_keep_publications(walk: Walk) -> None:
    walk.names |= {"/var/lib/heliograph": str(walk.folder / "kept")}
    page = walk.page(f"{HOW_TO}/keep-publications.md")
    (embedded,) = page.next()
    embedded.interrupt()
    walk.command("heliograph network key network.key")
    walk.command("heliograph broker run --network-key-file network.key")
    page.next()
    durable, _, replayed, names = page.next()
    durable.shows("orders/7 3 lamps")
    assert "orders/7 3 lamps" in replayed.text
    assert "billing" in names.text
    durable.interrupt()
    walk.command("heliograph subscription drop billing")
    _, shared, listed = page.next()
    shared.shows("subscribed")
    assert "billing" in listed.text
    page.done()


@pytest.mark.sweep
def test_publish_reliably(walk: Walk) -> None:
    page = walk.page(f"{HOW_TO}/publish-reliably.md")
    walk.command("heliograph broker run --store --store-place kept")
    page.next()
    walk.ended(*page.next(f"{CONNECTED}\npayloads = ['1', '2']"))
    (durable,) = page.next()
    walk.command("heliograph publish orders/9 '2 lamps' --reliable")
    durable.shows("orders/9 2 lamps")
    durable.interrupt()
    (loop,) = page.next(f"{CONNECTED}\ndef work_on(publication):\n    print(publication.topic)")
    walk.command("heliograph publish orders/10 later --reliable")
    loop.shows("orders/10")
    loop.process.kill()
    (replayed,) = page.next()
    assert "orders/10" in replayed.text
    (runs,) = page.next(f"{CONNECTED}\nfrom datetime import datetime, UTC\nmoment = datetime(2026, 1, 1, tzinfo=UTC)")
    walk.ended(runs)
    assert re.search(r"orders/7\n", runs.text), runs.text
    rows = "rows = [('results/1', 'x'), ('results/2', 'y')]"
    other = "other = client.batch('store', 'nightly-job', 1)\nother_count = await other.stage('part-4', rows)"
    walk.ended(*page.next(f"{CONNECTED}\n{rows}\nnumber = 1\n{other}"))
    assert walk.command("heliograph replay 'results/#'").text.count("results/") == 4
    page.done()


@pytest.mark.sweep
def test_requests_and_groups(walk: Walk) -> None:
    page = walk.page(f"{HOW_TO}/requests-and-groups.md")
    walk.command("heliograph broker run")
    request, responder = page.take("python"), page.take("python")
    answered = walk.program(f"{responder}\n{request}", CONNECTED)
    walk.ended(answered)
    assert answered.text == "b'HELLO'\n"
    _, asked = page.next()
    assert "HELLO" in asked.text
    walk.ended(*page.next(CONNECTED))
    (member,) = page.next()
    walk.command("heliograph publish jobs one")
    member.shows("jobs one")
    two = "other = await heliograph.connect()\ninbox_of_one, inbox_of_other = client.inbox, other.inbox"
    shown = page.take("python").replace("...", "print(publication.topic, publication.payload)\n    break")
    directed = walk.program(shown, f"{CONNECTED}\n{two}")
    walk.ended(directed)
    assert directed.text == "note b'for two'\n"
    (wide,) = page.next()
    walk.command("heliograph publish alarms fire")
    wide.shows("alarms fire")
    page.done()


@pytest.mark.sweep
def test_run_a_directory(walk: Walk) -> None:
    page = walk.page(f"{HOW_TO}/run-a-directory.md")
    _, directory, broker, listed = page.next()
    assert "b0" in listed.text
    directory.interrupt()
    (public,) = page.next()
    public.interrupt()
    checked(walk, page.take("toml"))
    (filtered,) = page.next()
    filtered.interrupt()
    walk.command("heliograph ca init")
    walk.command("cp heliograph-ca/authority.crt .")
    (private,) = page.next()
    private.interrupt()
    walk.command("heliograph bdn run")
    joined, _ = page.next()
    joined.shows("joined b0")  # a reader types the second line later
    assert "b1" in walk.command("heliograph network map").text
    page.done()
    for terminal in (joined, broker):
        terminal.interrupt()


@pytest.mark.sweep
def test_run_a_network(walk: Walk) -> None:
    page = walk.page(f"{HOW_TO}/run-a-network.md")
    page.next()
    subscriber, _ = page.next()
    subscriber.shows(r"plant/7 21\.5")
    _, _, trace = page.next()
    assert (walk.folder / "map.svg").read_text().startswith("<")
    assert "→" in trace.text
    shown = json.loads(walk.command("heliograph network map --json").text)
    walk.names["PID"] = str(next(broker["pid"] for broker in shown["brokers"] if broker["name"] == "a2"))
    page.next()
    del walk.names["PID"]
    subscriber.shows(r"plant/7 21\.6")
    subscriber.interrupt()
    page.next()  # down
    (walk.folder / "plant.toml").write_text(page.take("toml"))
    (plant,) = page.next()
    plant.interrupt()
    page.next()  # two brokers with a key
    checked(walk, page.take("toml"), whole=False)
    walk.names |= {"hall-3.example.org:4717 --secure": "127.0.0.1:4719", "hall-3.example.org:4717": "127.0.0.1:4719"}
    _, listed, _ = page.next()
    assert "127.0.0.1:4719" in listed.text
    for _ in range(2):
        checked(walk, page.take("toml"))
    page.done()


@pytest.mark.sweep
def test_secure_a_broker(walk: Walk) -> None:
    """On one machine, as the page says: with --localhost, and localhost as the broker's name."""
    walk.names |= {"--host plant-7.example.org": "--localhost", "plant-7.example.org": "localhost"}
    page = walk.page(f"{HOW_TO}/secure-a-broker.md")
    page.next()
    page.next()
    settings = walk.folder / "heliograph.toml"
    settings.write_text(page.take("toml"))
    walk.command("heliograph config check")
    broker, _ = page.next()
    walk.command("heliograph ca revoke sensor-7")
    settings.write_text(settings.read_text() + 'revoked = "heliograph-ca/revoked.crl"\n')
    admin = "--url heliographs://localhost --authority authority.crt --certificate alice.crt --key alice.key"
    assert "in force: tls.revoked" in walk.command(f"heliograph broker reload {admin}").text
    sensor = "--url heliographs://localhost --authority authority.crt --certificate sensor-7.crt --key sensor-7.key"
    refused = walk.start(f"heliograph publish sensors/sensor-7/temperature 22 {sensor}")
    assert refused.process.wait(60) == 1
    assert "revoked" in refused.text
    broker.interrupt()

    tokens = page.blocks.pop(0)[1]
    settings.write_text(page.take("toml"))
    adding, listing, publishing = [line.removeprefix("$ ") for line in tokens.replace("\\\n", " ").splitlines()]
    walk.command(adding)
    assert "sensor-8" in walk.command(listing).text
    broker = walk.command("heliograph broker run")
    walk.command(publishing)
    checked(walk, page.take("toml"))
    page.next()
    page.next()
    checked(walk, page.take("toml"))
    page.done()


@pytest.mark.sweep
def test_slow_consumers(walk: Walk) -> None:
    page = walk.page(f"{HOW_TO}/slow-consumers.md")
    walk.command("heliograph broker run")
    (walk.folder / "records.txt").write_text("one\ntwo\n")
    subscriber, _ = page.next()
    subscriber.shows("plant/bulk one\nplant/bulk two")
    page.done()


@pytest.mark.sweep
def test_simulate_a_network(walk: Walk) -> None:
    page = walk.page(f"{HOW_TO}/simulate-a-network.md")
    _, one, _ = page.next()
    assert "seed 1: good" in one.text
    scenarios = [page.take("toml"), page.take("toml"), RESOURCES + page.take("text")]
    scenarios += [page.take("toml") for _ in ("topics", "distances", "contents")]
    for scenario in scenarios:
        assert "seed 1: good" in simulated(walk, scenario)
    page.done()


def simulated(walk: Walk, scenario: str) -> str:
    (walk.folder / "my-plant.toml").write_text(scenario)
    return walk.command("heliograph simulate my-plant.toml --seed 1").text


def checked(walk: Walk, settings: str, *, whole: bool = True) -> None:
    """The settings are valid; if they name files that only the reader has, they are at least understood."""
    (walk.folder / "try.toml").write_text(settings)
    line = "heliograph config check --config try.toml"
    text = walk.command(line if whole else f"{line} || true").text
    assert "unknown" not in text, text
