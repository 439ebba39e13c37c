"""Inputs for the fuzzer: what peers do to brokers and their services, bytes and silences, good and bad.

In:    dice, and what attackers know.
Out:   the next Input, of any kind (KINDS); here those of the kind "frames".
State: none beyond one input's dice.
Not here: the other kinds (datagrams.py, service_requests.py, signed_messages.py, publications.py), sessions (valid.py,
          neighbours.py), what goes wrong with them (mutations.py), carrying an input out (network_target.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

from tests.conformance import grammar
from tests.conformance.grammar import put_together
from tests.fuzz import neighbours
from tests.fuzz.datagrams import datagrams
from tests.fuzz.mutations import mutate
from tests.fuzz.publications import stored
from tests.fuzz.service_requests import requests
from tests.fuzz.signed_messages import signed
from tests.fuzz.steps import Input, Knowledge, Step
from tests.fuzz.valid import FILTERS, SECRETS, TOKEN, event, hello, session, subscribe


def make(dice: random.Random, known: Knowledge, lies: bool = False) -> Input:
    """The next input for a network. Where brokers lie, some who dial are proven brokers."""
    if lies:
        return frames(dice, lies=True)
    make_one = dice.choices(list(KINDS), list(KINDS.values()))[0]
    return make_one(dice, known)


def frames(dice: random.Random, live: bool = False, lies: bool = False) -> Input:
    """A session of a client or broker; for a live broker without steps that only a network of ours can take."""
    kind = dice.choices(["mutated", "random", "valid", "special"], [65, 12, 8, 15])[0]
    if kind == "special":
        left_out = (*(NOT_LIVE if live else ()), *(() if live or lies else LYING))
        name = dice.choice([name for name in SPECIALS if name not in left_out])
        return Input("frames", SPECIALS[name](dice))
    weights = [50, 7, 3, 40] if lies else [70, 7, 3, 20 if live else 0]
    listener = dice.choices(["main", "token", "mutual", "broker"], weights)[0]
    if kind == "random":
        data = _noise(dice)
    else:
        as_broker = listener == "broker" or (not live and dice.random() < 0.1)  # without proof, if it is at another
        said = neighbours.session(dice) if as_broker else session(dice, listener)
        data = b"".join(said) if kind == "valid" else mutate(said, dice)
    node = "" if live or listener == "broker" else dice.choice(["", "", "@beside"])
    return Input("frames", [Step(0, "dial", word=listener + node), *pieces(0, data, dice), *_ending(dice)])


def pieces(peer: int, data: bytes, dice: random.Random) -> list[Step]:
    """The same bytes, in one piece or cut anywhere."""
    if not data:
        return []
    cuts = sorted(dice.randrange(len(data)) for _ in range(dice.choice([0, 0, 0, 1, 2, 5])))
    bounds = [0, *cuts, len(data)]
    return [Step(peer, "bytes", data[start:end]) for start, end in pairwise(bounds) if start < end]


def _ending(dice: random.Random) -> list[Step]:
    return [Step(0, "leave")] if dice.random() < 0.3 else []


def _noise(dice: random.Random) -> bytes:
    """Bytes that never were a session; half of the time cut into frames, and behind a good HELLO."""
    noise = [dice.randbytes(dice.randint(1, 300))]
    if dice.random() < 0.5:
        kinds = [dice.choice([*grammar.KINDS, *range(25, 45), 0, 5, 255]) for _ in range(dice.randint(1, 6))]
        noise = [put_together(kind, dice.getrandbits(64), dice.randbytes(dice.randint(0, 60))) for kind in kinds]
    return b"".join([hello(dice.choice(SECRETS)), *noise] if dice.random() < 0.6 else noise)


# -- things that chance rarely finds ----------------------------------------------------------------------------


def _say_nothing(dice: random.Random) -> list[Step]:
    return [Step(0, "dial", word="main"), Step(0, "silence", word="2500")]


def _fall_silent(dice: random.Random) -> list[Step]:
    greeting = hello(dice.choice(SECRETS), keep_alive_ms=1_000)
    return [Step(0, "dial", word="main"), Step(0, "bytes", greeting), Step(0, "silence", word="3500")]


def _hello_of_megabytes(dice: random.Random) -> list[Step]:
    greeting = hello(dice.choice(SECRETS), name="n" * 20_000)
    return [Step(0, "dial", word="main"), *pieces(0, greeting, dice)]


def _frames_behind_a_slow_hello(dice: random.Random) -> list[Step]:
    greeting = hello(SECRETS[0], entity="tester", token="wrong" if dice.random() < 0.5 else TOKEN)
    return [Step(0, "dial", word="token"), *pieces(0, greeting + event(SECRETS[0], "a", 1) * 900, dice)]


def _take_over(dice: random.Random) -> list[Step]:
    greeting = hello(SECRETS[1])
    first = [Step(0, "dial", word="main"), Step(0, "bytes", greeting + event(SECRETS[1], "a", 7))]
    second = [Step(1, "dial", word="main"), *pieces(1, greeting + event(SECRETS[1], "a", 7), dice)]
    return [*first, *second, Step(0, "bytes", event(SECRETS[1], "a", 8))]


def _never_read(dice: random.Random) -> list[Step]:
    asks = put_together(grammar.PING, 1) * 200
    wants = subscribe(1, "a/#", policy=dice.choice(["disconnect", "drop_oldest", "hold"]))
    flood = b"".join(event(SECRETS[2], "a/b", n) for n in range(300))
    greeting = hello(SECRETS[2], hold=dice.random() < 0.5)
    steps = [Step(0, "dial", word="main"), Step(0, "bytes", greeting + wants), Step(0, "press")]
    return [*steps, *pieces(0, dice.choice([asks, flood, asks + flood]), dice)]


def _subscribe_to_everything(dice: random.Random) -> list[Step]:
    wants = b"".join(subscribe(number, dice.choice(FILTERS)) for number in range(30))
    return [Step(0, "dial", word="main"), *pieces(0, hello(dice.choice(SECRETS)) + wants, dice)]


def _ask_too_much(dice: random.Random) -> list[Step]:
    asks = b"".join(put_together(grammar.SERVICE, n, b"{}", b"mute") for n in range(80))
    return [Step(0, "dial", word="main"), *pieces(0, hello(dice.choice(SECRETS)) + asks, dice)]


def _ask_as_an_administrator(dice: random.Random) -> list[Step]:
    questions = [
        b"{}",
        b'{"do":"dance"}',
        b'{"do":"report","question":7}',
        b'{"do":"report","question":"links","start":-1}',
    ]
    questions += [b"", b"null", b"\xff", b"[" * 5_000, b'{"do":"report","question":"subscriptions","count":3}']
    asks = b"".join(put_together(grammar.SERVICE, n, text, b"admin") for n, text in enumerate(questions))
    return [Step(0, "dial", word="admin"), *pieces(0, hello(dice.choice(SECRETS)) + asks, dice)]


def _too_much_of_a_condition(dice: random.Random) -> list[Step]:
    where = dice.choice(
        ["price > 5 and " * 3_000 + "price > 5", "(" * 400 + "price" + ")" * 400, "a ~ '(x{9}){9}'" * 99]
    )
    wants = subscribe(1, "a", language=dice.choice(["predicates", "sql", "regex"]), where=where)
    return [Step(0, "dial", word="main"), *pieces(0, hello(dice.choice(SECRETS)) + wants, dice)]


def _a_filter_that_is_none(dice: random.Random) -> list[Step]:
    wants = subscribe(1, dice.choice(["a//b", "#/a", "a/+b", "", "a/\x00"]))
    return [Step(0, "dial", word="main"), *pieces(0, hello(dice.choice(SECRETS)) + wants, dice)]


def _a_client_as_a_broker(dice: random.Random) -> list[Step]:
    return [Step(0, "dial", word="main"), *pieces(0, b"".join(neighbours.session(dice)), dice)]


def _a_broker_of_our_own_name(dice: random.Random) -> list[Step]:
    return [Step(0, "dial", word="broker"), *pieces(0, neighbours.link(neighbours.NAME), dice)]


def _a_crowded_cluster(dice: random.Random) -> list[Step]:
    """A broker tells of as many others as a cluster holds, and then one more comes."""
    names = [f"crowd-{number}" for number in range(63)]
    first = neighbours.broker_id(names[0])
    links = {neighbours.broker_id(name): 100 for name in names[1:]}
    told = [neighbours.member(name, slot, {first: 100}) for slot, name in enumerate(names[1:], 1)]
    told.append(neighbours.member(names[0], 0, {**links, neighbours.ME: 100}))
    crowd = [Step(0, "dial", word="broker"), *pieces(0, b"".join([neighbours.link(names[0]), *told]), dice)]
    return [*crowd, Step(1, "dial", word="broker"), Step(1, "bytes", neighbours.link("one-more")), Step(0, "leave")]


SPECIALS: dict[str, Callable[[random.Random], list[Step]]] = {
    "say nothing": _say_nothing,
    "fall silent": _fall_silent,
    "a hello of megabytes": _hello_of_megabytes,
    "frames behind a slow hello": _frames_behind_a_slow_hello,
    "take over": _take_over,
    "never read": _never_read,
    "subscribe to everything": _subscribe_to_everything,
    "ask too much": _ask_too_much,
    "ask as an administrator": _ask_as_an_administrator,
    "too much of a condition": _too_much_of_a_condition,
    "a filter that is none": _a_filter_that_is_none,
    "a client as a broker": _a_client_as_a_broker,
    "a broker of our own name": _a_broker_of_our_own_name,
    "a crowded cluster": _a_crowded_cluster,
}
NOT_LIVE = ("say nothing", "fall silent", "ask as an administrator")  # they need a clock or an identity of ours
LYING = ("a broker of our own name", "a crowded cluster")  # they need a broker's certificate


def _frames(dice: random.Random, known: Knowledge) -> Input:
    return frames(dice)


KINDS: dict[Callable[[random.Random, Knowledge], Input], int] = {  # with their weights
    _frames: 25,
    requests: 35,
    stored: 15,
    signed: 15,
    datagrams: 10,
}
