"""A broker that has the network key and says whatever a test wants.

In:    a mesh, the broker to link to, who it claims to be.
Out:   frames on that link; what it hears.
State: its link.
Not here: the brokers that have to bear it (mesh.py), any judgement (the tests).
"""

from __future__ import annotations

import hmac
import json
from hashlib import sha256
from typing import Any

from heliograph.errors import Reason
from heliograph.wire.broker_bodies import broker_id
from heliograph.wire.frames import Kind, control, parcel
from tests.broker.routing.mesh import KEY, READ_BYTES_MAX, Mesh
from tests.broker.talk import Heard


def proof_of(side: str, link: bytes, linked: bytes) -> str:
    """What this side shows of the network key, written from the protocol page: of the bodies of LINK and LINKED."""
    message = f"heliograph link {side} {sha256(link).hexdigest()} {sha256(linked).hexdigest()}"
    return hmac.new(KEY, message.encode(), sha256).hexdigest()


class Hostile:
    """One linked broker that lies."""

    def __init__(self, mesh: Mesh, at: str, link: int = 500, name: str = "hostile", **claims: Any) -> None:
        self.mesh = mesh
        self.node = mesh[at]
        self.link = link
        self.broker = claims.get("broker", broker_id(name))
        self.name = name
        self.cluster = claims.get("cluster", "main")
        self.speaker = self.broker  # of its cluster, as it said last
        self._incarnation = 1
        self._number = 0
        self.node.attach(link)
        said = {
            **{"versions": [1], "broker": self.broker, "name": name, "cluster": "main", "incarnation": 1},
            **{"nonce": "00" * 16, **claims},
        }
        self.say(Kind.LINK, said)
        answers = [frame for frame in self.heard.answers if frame.kind == Kind.LINKED]
        if answers:
            self.say(Kind.PROOF, {"proof": proof_of("dialler", json.dumps(said).encode(), answers[0].payload)})

    @property
    def heard(self) -> Heard:
        return self.node.heard[self.link]

    @property
    def end(self) -> Reason | None:
        """Why the broker ended the link, if it did."""
        return self.node.hangups.get(self.link)

    def say(self, kind: Kind, body: object, run: bool = True) -> None:
        """A control frame with this body."""
        self.send(control(kind, 0, body if isinstance(body, bytes) else json.dumps(body).encode()), run)

    def send(self, data: bytes, run: bool = True) -> None:
        """These bytes."""
        for start in range(0, len(data), READ_BYTES_MAX):
            self.node.say(self.link, data[start : start + READ_BYTES_MAX])
        if run:
            self.mesh.run()

    def parcel(self, frames: bytes, members: int = 0, ttl: int = 64, epoch: int | None = None, **hops: Any) -> None:
        """A parcel with these frames."""
        self._number += 1
        epoch = self.node.broker._routing.view.epoch if epoch is None else epoch
        self.send(parcel(len(frames), ttl, epoch, members, self._number, **hops) + frames)

    def member(self, **fields: Any) -> None:
        """Its own record as a member, with a link to the broker that it is linked to; or any other."""
        self._number += 1
        record = {
            **{"record": "member", "broker": self.broker, "name": self.name, "cluster": "main", "slot": 63, "epoch": 0},
            **{"incarnation": self._incarnation, "number": self._number},
            "links": {str(self.node.broker._routing.view.me): 1},
        }
        self._tell({**record, **fields})

    def gateway(self, **fields: Any) -> None:
        """Its own record as a gateway of a cluster of its own; or any other."""
        self._number += 1
        record = {
            **{"record": "gateway", "broker": self.broker, "name": self.name, "cluster": "theirs"},
            **{"speaker": self.broker, "incarnation": self._incarnation, "number": self._number, "inside": {}},
            **{"outside": {str(self.node.broker._routing.view.me): 1}},
        }
        self.speaker = fields.get("speaker", self.speaker)
        self._tell({**record, **fields})

    def _tell(self, record: dict[str, Any]) -> None:
        if record["broker"] == self.broker and isinstance(record["incarnation"], int):
            self._incarnation = record["incarnation"]
        self.say(Kind.MAP, record)

    def interest(self, **fields: Any) -> None:
        """Its own wishes, all of them; or any other."""
        self._number += 1
        body = {
            "owner": self.broker,
            "wide": False,
            "incarnation": self._incarnation,
            "number": self._number,
            "full": True,
        }
        self.say(Kind.INTEREST, {**body, **fields})
