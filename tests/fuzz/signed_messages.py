"""Messages about topics, grants and revocations: signed by real keys, and wrong in one thing.

In:    dice, and what attackers know.
Out:   inputs of the kind "signed": publications to the topic directory, and requests to the service "rights".
State: keyrings, one for each party.
Not here: requests that nobody signed (service_requests.py).

What is wrong is a field of the body (then the signature is good), or the signature, the chain of certificates, the
seal, the kind or the purpose. Attackers have certificates of clients, and one of a directory of their own. A directory
is trusted with the ids of topics, so theirs signs new ids only, never the canary's.
"""

from __future__ import annotations

import json
import random
from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import Any
from zlib import compress

import msgspec

from heliograph.discovery.signed_bodies import SEALED, SIGNED
from heliograph.discovery.topics import grants, messages
from heliograph.discovery.topics.bundle import GrantBundle, decode_bundle, encode_bundle
from heliograph.discovery.topics.grants import Revocation, TopicGrant
from heliograph.discovery.topics.key_statements import KEY_STATEMENT_DOMAIN
from heliograph.discovery.topics.listing import Creation, Descriptors, Synopsis, advertised, id_of
from heliograph.discovery.topics.messages import TopicKind, TopicMessage, TopicQuery, domain_of
from heliograph.discovery.topics.possession import POSSESSION_DOMAIN, possession_payload
from heliograph.discovery.topics.queries import QUERY_LANGUAGES
from heliograph.discovery.topics.statements import ADVERTISEMENT_DOMAIN
from heliograph.model.identity import Role
from heliograph.sim.clock import EPOCH_NS
from heliograph.trust.chains import Holder
from heliograph.trust.keyring import Keyring
from tests.conformance import grammar
from tests.conformance.grammar import put_together
from tests.discovery.topics.stage import keyring_of
from tests.fuzz.neighbours import NAME
from tests.fuzz.steps import Input, Knowledge, Step
from tests.fuzz.twists import JSON, MSGPACK, twist, write
from tests.fuzz.valid import body, event, hello, origin_of, subscribe

ENTITIES = ("mallory", "bob")
DIRECTORY = "tdn-of-mallory"
HOUR_MS = 3_600_000
TEXTS = {
    "": "",
    "string": "hall three",
    "keywords": "temperature canaryword",
    "regex": "hall.*three",
    "sql": "floor > 2 AND path LIKE 'plant/%'",
    "predicates": "floor > 2",
    "xpath": "//hall[@floor > 2]",
    "tags": "class=stock",
    "integer": "10..20",
    "xquery": "for $h in //hall return $h",
}
assert set(TEXTS) == set(QUERY_LANGUAGES), "a language without an example"
SECRETS = {entity: sha256(entity.encode()).digest()[:16] for entity in ENTITIES}


@cache
def keyring(entity: str) -> Keyring:
    """The keys of an attacker."""
    return keyring_of(entity, Role.DIRECTORY if entity == DIRECTORY else Role.CLIENT)


@cache
def _holder(entity: str) -> Holder:
    own = keyring(entity).own
    assert own is not None
    return keyring(entity).learn(own.chain, EPOCH_NS)


def _chain(entity: str) -> bytes:
    return _holder(entity).chain


def signed(dice: random.Random, known: Knowledge) -> Input:
    """What an entity with a certificate sends to the directory, or shows to its broker."""
    who = dice.choice(ENTITIES)
    node = dice.choice(["", "", "@beside"])
    begin = [Step(0, "dial", word=dice.choice(["client", "client", "main"]) + node)]
    frames = [hello(SECRETS[who])]
    ends: list[Step] = []
    if dice.random() < 0.6:
        frames += [_publication(dice, known, who, number) for number in range(1, dice.choice([2, 2, 3]))]
    else:
        shown, ends = _right(dice, known, who)
        frames += shown
    after = event(SECRETS[who], f"{known.root}/x", 1_000, b"from an attacker")
    frames += [subscribe(1, f"{known.root}/#"), after] if dice.random() < 0.3 else []
    return Input("signed", [*begin, Step(0, "bytes", b"".join(frames)), *ends])


# -- to the directory -----------------------------------------------------------------------------------------------


def _publication(dice: random.Random, known: Knowledge, who: str, number: int) -> bytes:
    kind, fields, chains = _statement(dice, known, who)
    root = dice.choice([messages.TOPICS_TOPIC, messages.DIRECTORIES_TOPIC])
    suffix = f"/{known.directory}" if dice.random() < 0.3 else ""
    return event(SECRETS[who], root + suffix, known.wall_ms + number, _said(dice, kind, fields, who, chains))


def _statement(dice: random.Random, known: Knowledge, who: str) -> tuple[TopicKind, dict[str, Any], list[bytes]]:
    """A message that the directory would take."""
    said: dict[str, Any] = {"id": dice.randbytes(16), "issued_ms": known.wall_ms}
    topic = dice.randbytes(16)
    match dice.choice(
        ["locate", "create", "renew", "advertise", "advertise", "withdraw", "search", "search", "unwatch"]
    ):
        case "locate":
            return TopicKind.LOCATE, said | {"institution": "i", "creates": True}, []
        case "create":
            return TopicKind.CREATE, said | {"creation": _plain(_creation(dice, who))}, []
        case "renew":
            lived = {"lifetime_s": 600, "advertisement": _advertisement(dice, known, who, topic)}
            return TopicKind.RENEW, said | lived, [_chain(DIRECTORY)]
        case "advertise":
            return (
                TopicKind.ADVERTISE,
                said | {"advertisement": _advertisement(dice, known, who, topic)},
                [_chain(DIRECTORY)],
            )
        case "withdraw":
            return TopicKind.WITHDRAW, said | {"topic": topic}, []
        case "search":
            return TopicKind.SEARCH, said | _search(dice, known), []
        case _:
            return TopicKind.UNWATCH, said | {"search": topic}, []


def _search(dice: random.Random, known: Knowledge) -> dict[str, Any]:
    language = dice.choice(QUERY_LANGUAGES)
    query = TopicQuery(language, TEXTS[language if dice.random() < 0.7 else dice.choice(QUERY_LANGUAGES)])
    times = {"created_from_ms": 1, "created_until_ms": 1 << 51, "expires_until_ms": 1 << 51, "valid_for_ms": 5}
    more = {"owner": "canary", "institution": "i", "space": "s", "topics": [b"t" * 16], **times, "newest_first": True}
    asked = _plain(query) | dict(dice.sample(sorted(more.items()), dice.randint(0, 3)))
    watch = {"watch_ms": 10_000, "watch": b"w" * 16} if dice.random() < 0.3 else {}
    until = {"count": 10, "until_ms": known.wall_ms + 5_000, "answers": 3, "grants": [b"g" * 100]}
    return {"query": asked, **until, **watch}


def _said(dice: random.Random, kind: TopicKind, fields: dict[str, Any], who: str, chains: list[bytes]) -> bytes:
    """A message: its body is wrong in one field and well signed, or it is right and what surrounds it is wrong."""
    fault = dice.choice(["body", "body", "body", "body", "signature", "chain", "seal", "kind", "flags", "cut", "none"])
    payload = twist(fields, MSGPACK, dice) if fault == "body" else msgspec.msgpack.encode(fields)
    data = keyring(who).sign(domain_of(dice.choice(list(TopicKind)) if fault == "kind" else kind), payload)
    flags = SIGNED
    if fault == "signature":
        data = _flipped(data, dice)
    if fault == "seal" or dice.random() < 0.1:
        data = keyring(who).seal(_holder(dice.choice(ENTITIES)), domain_of(kind), data)
        flags |= SEALED
    if fault == "flags":
        flags = dice.randint(0, 7)
    given = [_chain(who), *chains]
    if fault == "chain":
        given = dice.choice([[], given[::-1], given * 2, [_flipped(given[0], dice)], [b""], [b"x" * 9], given * 100])
    message = messages.pack(TopicMessage(kind, flags, tuple(given), data))
    return _flipped(message, dice) if fault == "cut" else message


# -- to the service "rights" ------------------------------------------------------------------------------------------


def _right(dice: random.Random, known: Knowledge, who: str) -> tuple[list[bytes], list[Step]]:
    """A bundle with grants, or a revocation; and a proof of the holder's key, if the broker asks for one."""
    if dice.random() < 0.3:
        return [
            _ask(
                dice,
                {
                    "do": "revoke",
                    "statement": _text(_revocation(dice, known, who)),
                    "bundle": _bundle(dice, known, who),
                },
            )
        ], []
    bundle = _bundle(dice, known, who)
    request = {"do": "present", "bundle": bundle}
    twists = dice.choice(["", "", "signature", "broker", "session", "holder", "cut", "json"])
    return [_ask(dice, request)], [Step(0, "prove", bundle.encode(), f"{who} {twists}".strip())]


def _ask(dice: random.Random, request: dict[str, Any]) -> bytes:
    payload = write(request, JSON, dice) if dice.random() < 0.2 else body(**request)
    return put_together(grammar.SERVICE, 1, payload, b"rights")


def _bundle(dice: random.Random, known: Knowledge, who: str) -> str:
    """A topic of an attacker, or of the canary, and grants for it."""
    fault = dice.choice(["grant", "grant", "grant", "foreign", "foreign", "chains", "packed", "text", "none"])
    nonce = dice.randbytes(16)
    topic = id_of("mallory", nonce)
    advertise = _advertise(dice, known, "mallory", nonce)
    chains = [_chain(name) for name in ("mallory", "bob", DIRECTORY)]
    if fault == "foreign":
        shown = decode_bundle(known.bundle)
        advertise, chains = shown.advertise, [*shown.chains, *chains]
        topic = bytes.fromhex(known.root.partition("/")[2].replace("-", ""))
    granted = [_grant(dice, known, topic, "mallory", "bob", b"", fault == "grant")]
    if dice.random() < 0.4:
        parent = sha256(granted[0]).digest()
        granted.append(_grant(dice, known, topic, "bob", dice.choice([*ENTITIES, "canary"]), parent, fault == "grant"))
    if dice.random() < 0.3:
        granted = []
    if fault == "chains":
        chains = dice.choice([[], chains * 3, [_flipped(chains[0], dice)], [b""]])
    fields = {"advertise": advertise, "chains": chains, "grants": granted, "key": b"k" * 32}
    fields["statement"] = _key_statement(dice, known, topic)
    if fault == "packed":
        return _text(compress(twist(fields, MSGPACK, dice), 6))
    text = encode_bundle(GrantBundle(**fields))
    return str(dice.choice([text[:-3], text + "x", "", "AAAA", text.lower(), "ä"])) if fault == "text" else text


def _grant(
    dice: random.Random, known: Knowledge, topic: bytes, signer: str, holder: str, parent: bytes, twisted: bool
) -> bytes:
    verbs = {"publish": True, "subscribe": True, "discover": dice.random() < 0.5, "delegate": dice.random() < 0.7}
    times = {"begins_ms": known.wall_ms - 1_000, "expires_ms": known.wall_ms + HOUR_MS}
    fields = _plain(TopicGrant(dice.randbytes(16), topic, holder, **times, **verbs, parent=parent))
    payload = twist(fields, MSGPACK, dice) if twisted else msgspec.msgpack.encode(fields)
    data = keyring(signer).sign(grants.GRANT_DOMAIN, payload)
    return _flipped(data, dice) if dice.random() < 0.1 else data


def _key_statement(dice: random.Random, known: Knowledge, topic: bytes) -> bytes:
    fields = {"topic": topic, "epoch": dice.choice([1, 2**31]), "issued_ms": known.wall_ms, "digest": b"d" * 32}
    return keyring("mallory").sign(KEY_STATEMENT_DOMAIN, write(fields, MSGPACK, dice))


def _revocation(dice: random.Random, known: Knowledge, who: str) -> bytes:
    grant = dice.choice([b"", dice.randbytes(16)])
    fields = _plain(Revocation(dice.randbytes(16), known.wall_ms + dice.choice([0, -HOUR_MS, HOUR_MS]), grant))
    data = keyring(who).sign(grants.REVOCATION_DOMAIN, write(fields, MSGPACK, dice))
    return _flipped(data, dice) if dice.random() < 0.1 else data


def proof(heard: bytes, bundle: str, who: str) -> bytes:
    """The answer to the last challenge that was heard on a link; of ENTITY, with one FAULT."""
    entity, _, fault = who.partition(" ")
    asked = [frame.payload for frame in grammar.whole_frames(heard) if frame.kind == grammar.SERVICE]
    challenge = json.loads(asked[-1]).get("challenge", "none") if asked else "none"
    broker = "elsewhere" if fault == "broker" else NAME
    session = 7 if fault == "session" else origin_of(SECRETS[entity])
    signer = "tdn-of-mallory" if fault == "holder" else entity
    data = keyring(signer).sign(POSSESSION_DOMAIN, possession_payload(challenge, broker, f"{session:016x}"))
    if fault == "signature":
        data = data[:20] + bytes([data[20] ^ 1]) + data[21:]
    shown = _text(data[:40] if fault == "cut" else data)
    request = {"do": "present", "bundle": bundle, "proof": [shown] if fault == "json" else shown}
    return put_together(grammar.SERVICE, 2, body(**request), b"rights")


# -- what they are made of --------------------------------------------------------------------------------------------


def _creation(dice: random.Random, who: str) -> Creation:
    described = Descriptors(
        path="plant/hall-3",
        text="temperature of hall three",
        keywords=["hall", "temperature"],
        properties={"floor": 3, "name": "x", "size": 1.5, "on": True},
        document="<plant><hall floor='3'/></plant>",
    )
    types = dice.choice([("string", "temperature"), ("integer", "1"), ("tags", "a=b"), ("properties", ""), ("xml", "")])
    readers = dice.choice([["*"], ["bob"], []])
    return Creation(who, 600, "i", "s", described, Synopsis(*types), readers=readers, sealed=b"")


def _advertisement(dice: random.Random, known: Knowledge, who: str, nonce: bytes) -> bytes:
    """An advertisement that the attackers' directory signed, or none; one in three has something wrong in it."""
    made = advertised(_creation(dice, who), nonce, DIRECTORY, known.wall_ms, known.wall_ms, known.wall_ms + HOUR_MS)
    fields = _plain(made)
    payload = twist(fields, MSGPACK, dice) if dice.random() < 0.3 else msgspec.msgpack.encode(fields)
    return keyring(DIRECTORY if dice.random() < 0.9 else who).sign(ADVERTISEMENT_DOMAIN, payload)


def _advertise(dice: random.Random, known: Knowledge, who: str, nonce: bytes) -> bytes:
    fields = {"id": dice.randbytes(16), "issued_ms": known.wall_ms}
    fields["advertisement"] = _advertisement(dice, known, who, nonce)
    return keyring(who).sign(domain_of(TopicKind.ADVERTISE), msgspec.msgpack.encode(fields))


def _plain(body: msgspec.Struct) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(body, builtin_types=(bytes,))
    return fields


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _flipped(data: bytes, dice: random.Random) -> bytes:
    """One bit is another, or the end is missing."""
    at = dice.randrange(len(data))
    return data[:at] if dice.random() < 0.3 else data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
