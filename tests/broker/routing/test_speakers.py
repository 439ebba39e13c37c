"""The member that speaks for its cluster leaves: what is on its way under the old name still arrives."""

import pytest

from heliograph.errors import Reason
from tests.broker.routing.mesh import Mesh

pytestmark = pytest.mark.req("N5")


def test_nothing_is_lost_between_clusters_while_a_speaker_leaves() -> None:
    mesh = Mesh({"a": ["b"], "b": ["c"], "c": ["d"]}, {"a": "x", "b": "x", "c": "y", "d": "y"})
    assert mesh.report("b", "map")["speaker"] == "a"
    heard = mesh.client("b", 1)
    mesh.subscribe("b", 1, "t")
    mesh.client("c", 2)
    mesh.client("d", 3)
    mesh.nodes.pop("a")
    [(link, _)] = [(link, end) for link, end in mesh["b"].ends.items() if end[0].name == "a"]
    del mesh["b"].ends[link]
    mesh["b"].broker.detach(link, Reason.CLOSED, mesh.now)
    mesh["b"].take()
    for number in range(20):  # b's news travel one step at a time, and publications between them
        mesh["c"].publish(2, "t", b"c%d" % number)
        mesh["d"].publish(3, "t", b"d%d" % number)
        kind, node, *rest = mesh.work.popleft()
        getattr(mesh, f"_{kind}")(node, *rest)
    mesh.run()
    assert mesh.report("c", "map")["clusters"][0]["speaker"] == "b"
    for name in "cd":
        wanted = [f"{name}{number}".encode() for number in range(20)]
        assert [payload for payload in heard.payloads if payload.startswith(name.encode())] == wanted
