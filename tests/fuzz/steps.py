"""Steps: what peers do, one after the other; as text, for the corpus.

In:    a generator's wishes, or a file of the corpus.
Out:   Input: steps that one or two peers take; Knowledge: what attackers know.
State: none.
Not here: making inputs (inputs.py), carrying them out (network_target.py, live_target.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Step:
    """Something a peer does: dial LISTENER[@BROKER] | bytes HEX | silence MS | press | leave | prove ENTITY [FAULT]
    HEX; without a link: datagram SOURCE TARGET HEX | until MS, which lets time pass until then.

    Who dials "client", "admin" or "broker" shows a certificate with that role; "prove" answers the challenge of the
    service "rights" for the bundle in HEX, with one thing wrong in the proof.
    """

    peer: int
    verb: str
    data: bytes = b""
    word: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (str(self.peer), self.verb, self.word, self.data.hex()) if part)


WITH_DATA = {"bytes": 0, "datagram": 2, "prove": 1}  # verbs with bytes, and how many words come before these at least


@dataclass
class Input:
    """What peers do, and how it was made."""

    kind: str  # "frames", "datagrams", "requests", "signed" or "stored"
    steps: list[Step] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([f"# {self.kind}", *map(str, self.steps)]) + "\n"

    @staticmethod
    def read(text: str) -> Input:
        """An input as it was written to the corpus."""
        steps = []
        for line in text.splitlines():
            if line and not line.startswith("#"):
                peer, verb, *words = line.split(" ")
                data = bytes.fromhex(words.pop()) if verb in WITH_DATA and len(words) > WITH_DATA[verb] else b""
                steps.append(Step(int(peer), verb, data, " ".join(words)))
        return Input(text.partition("\n")[0].removeprefix("# "), steps)


@dataclass(frozen=True)
class Knowledge:
    """What attackers know of the network: names and ids that are no secrets, and the time."""

    wall_ms: int
    store: str  # its id
    root: str  # of the canary's own topic
    inbox: str  # of the canary
    store_inbox: str
    bundle: str  # with which the canary shows that the topic is its own
    directory: str  # the topic directory

    def filled(self, given: Input) -> Input:
        """An input of the corpus, with the names that this network has."""
        return _replaced(given, [(there, here) for here, there in self._names()])

    def named(self, given: Input) -> Input:
        """An input for the corpus: whatever a network calls its store and topic, it can be shot at it again."""
        return _replaced(given, self._names())

    def _names(self) -> list[tuple[bytes, bytes]]:
        """What a network calls something, and the same in the corpus, equally long: frames say how long they are."""
        names = [(self.store, "the store"), (self.root, "the topic"), (self.inbox, "the inbox")]
        return [(name.encode(), f"<{text}>".ljust(len(name), "_").encode()) for name, text in names]


def _replaced(given: Input, pairs: list[tuple[bytes, bytes]]) -> Input:
    steps = []
    for step in given.steps:
        data = step.data
        for one, other in pairs:
            data = data.replace(one, other)
        steps.append(replace(step, data=data))
    return Input(given.kind, steps)
