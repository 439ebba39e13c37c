"""The admin service: wishes go on to the broker, and each answer back to whoever asked."""

from __future__ import annotations

from heliograph.machine import Peer
from heliograph.services.admin import Admin
from heliograph.wire import bodies
from heliograph.wire.frames import Frame, ServiceFlag, service
from heliograph.wire.requests import Asker

PIPE = 1
ASKER = bodies.encode(Asker(entity="root", roles=["admin"], proof="token", inbox="", session="0" * 16))


def said(admin: Admin) -> list[Frame]:
    return [Frame(frame) for _, frames in admin.take().writes for frame in frames]


def test_each_asker_gets_the_answer_to_its_own_question() -> None:
    admin = Admin()
    admin.attach(PIPE, Peer("pipe", "admin"), 0)
    askers = [(7, 40), (8, 50)]  # the origin and the number of a request
    for origin, number in askers:
        admin.receive(PIPE, service(b"admin", b'{"do": "report"}', number, origin, ASKER), 1)
    orders = said(admin)
    assert [order.topic for order in orders] == [b"broker", b"broker"]

    for order in reversed(orders):  # the broker need not answer in order
        body = b"answer %d" % order.sequence
        admin.receive(PIPE, service(b"broker", body, order.sequence, flags=ServiceFlag.ANSWER), 2)

    answers = {(answer.origin, answer.sequence): answer.payload for answer in said(admin)}
    assert answers == {asker: b"answer %d" % order.sequence for asker, order in zip(askers, orders, strict=True)}
    assert admin.report("overview") == {"answered": 2, "under_way": 0}
