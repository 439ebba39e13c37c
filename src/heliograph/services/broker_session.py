"""A service's session with a broker, over its pipe or over a link that it dialled.

In:    the bytes of one link; what the service sends.
Out:   frames in the service's outbox; publications for its subscriptions, answers to its orders, requests of clients.
State: the handshake, numbers of subscriptions and orders, the sequence of publications.
Not here: keeping links and dialling again (the service), sessions of programs (client/), the form of requests
          (wire/requests.py).

On a pipe the broker trusts a service as it trusts itself. Over a link the service presents a token, or its certificate
in TLS, and may publish and subscribe as the broker's access list allows. Frames sent before the broker's welcome follow
directly after the HELLO.

A request is decoded here, once, and every request gets an answer or a refusal: also if the service has no requests, and
if serving it raises. Whatever else raises in the service because of one frame costs that frame, never the link.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import unpack
from typing import Any, Protocol

import msgspec

from heliograph.errors import ConditionError, ProtocolError, Reason, UsageError
from heliograph.machine import Instant, LinkId, Outbox
from heliograph.model.origin import origin_of
from heliograph.model.publication import Publication
from heliograph.model.subscription import Policy
from heliograph.wire import bodies
from heliograph.wire.frames import HEAD, LENGTH, VERSION, Frame, Kind, ServiceFlag, control, event, service
from heliograph.wire.limits import FRAME_BYTES_MAX, HEAD_BYTES
from heliograph.wire.requests import UNREADABLE, Asker, RequestTypes, decode_asker
from heliograph.wire.splitter import FROM_BROKER, Splitter
from heliograph.wire.ways import WaysHere, decode_word

BROKER_NAME = b"broker"
ORDERS_MAX = 64  # in progress at once; a service asks rarely
PASSED_MAX = 1_024  # orders of administrators in progress at once
REFUSAL_LENGTH_MAX = 500  # of the text of a refusal
FAILED = "a bug in this broker, which its log describes; only this request failed"

Deliver = Callable[[Publication, Instant], None]
Answer = Callable[[Any, Instant], None]
Serve = Callable[[Frame, Any, Asker, Instant], None]
"""Gets a request: its frame, to be given to ``answer`` or ``refuse``; the struct; who asks. It may raise ProtocolError
or UsageError to refuse."""
Refused = Callable[[Reason], None]
Stored = Callable[[Frame, Instant], None]
Passed = Callable[[Frame, Instant], None]
Warned = Callable[[Instant], None]
Take = Callable[[bytes, Instant], None]
Welcomed = Callable[[bodies.Welcome, Instant], None]


class Attendant(Protocol):
    """A service that takes part in the network of services: it attends (``BrokerSession.attend``)."""

    def hear_ways(self, ways: WaysHere, now: Instant) -> None:
        """Neighbours and ways, initially and whenever they change."""

    def hear_neighbour(self, link: LinkId, payload: bytes, now: Instant) -> None:
        """A message of the same service at a neighbour."""

    def hear_refusal(self, link: LinkId, number: int, reason: Reason, now: Instant) -> None:
        """A message to a neighbour did not arrive."""

    def hear_end(self, asker: LinkId, now: Instant) -> None:
        """The link of a requester has closed."""

    def hear_untold(self, asker: LinkId, watch: int, now: Instant) -> None:
        """News of a watch did not reach the client, which does not read fast enough."""


class BrokerSession:
    """One link's session. The service passes it the bytes of every ``receive`` and checks ``fault`` afterwards.

    ``serve`` gets requests of clients to this service, which arrive on a pipe only, as one of the structs of
    ``requests``; ``refused`` is told why a request was refused. ``warned`` is called when the broker drains;
    ``attendant`` gets what an attending service is told. ``take`` gets whole deliveries of ``subscribe_whole`` and of
    directed publications, frames as received; ``stored`` gets STORED frames; ``welcome`` gets the broker's welcome;
    ``news`` gets news of watches, over a link.
    """

    def __init__(
        self,
        link: LinkId,
        outbox: Outbox,
        secret: bytes,
        *,
        requests: RequestTypes[Any] | None = None,
        serve: Serve | None = None,
        refused: Refused | None = None,
        warned: Warned | None = None,
        attendant: Attendant | None = None,
        take: Take | None = None,
        stored: Stored | None = None,
        welcome: Welcomed | None = None,
        news: Stored | None = None,
    ) -> None:
        self.link = link
        self._outbox = outbox
        self._splitter = Splitter(FROM_BROKER if stored is None else {**FROM_BROKER, Kind.STORED: FRAME_BYTES_MAX})
        self._secret = secret
        self._origin = origin_of(secret)
        self._sequence = 1  # of the next publication
        self._delivers: dict[int, Deliver] = {}
        self._orders: dict[int, Answer] = {}
        self._passed: dict[int, Passed] = {}
        self._numbers = 0
        self.welcomed = False
        self.refused: list[str] = []  # what the broker refused us, the first few
        self.fault: Reason | None = None
        self._requests = requests
        self._serve = serve
        self._refused = refused
        self._warned = warned
        self._attendant = attendant
        self._service = b""
        self._take = take
        self._stored = stored
        self._welcome = welcome
        self._news = news
        self._whole: dict[int, None] = {}

    # -- sending ------------------------------------------------------------------------------------------------

    def hello(
        self, name: str, entity: str = "", token: str = "", keep_alive_ms: int = bodies.KEEP_ALIVE_MS_DEFAULT
    ) -> None:
        """Begin a session, which may publish and subscribe."""
        body = bodies.Hello(
            [VERSION], self._secret.hex(), name=name, entity=entity, token=token, keep_alive_ms=keep_alive_ms
        )
        self._write(control(Kind.HELLO, 0, bodies.encode(body)))

    def subscribe(self, pattern: bytes, deliver: Deliver) -> None:
        """Pass every publication that matches to ``deliver``, except our own."""
        self._numbers += 1
        self._delivers[self._numbers] = deliver
        body = bodies.Subscribe(self._numbers, pattern.decode(), echo=False)
        self._write(control(Kind.SUBSCRIBE, self._numbers, bodies.encode(body)))

    def subscribe_whole(self, pattern: bytes) -> None:
        """Pass every delivery for this filter to ``take``. It only listens: it answers no request. While the service
        holds its link, publishers that opted in are held too."""
        self._numbers += 1
        self._whole[self._numbers] = None
        body = bodies.Subscribe(self._numbers, pattern.decode(), policy=Policy.HOLD.value, echo=False, listens=True)
        self._write(control(Kind.SUBSCRIBE, self._numbers, bodies.encode(body)))

    def send_frame(self, frame: bytes) -> None:
        """Send a frame as it is."""
        self._write(frame)

    def publish(self, topic: bytes, payload: bytes) -> None:
        """Publish, best effort."""
        self._write(event(topic, payload, self._origin, self._sequence))
        self._sequence += 1

    def order(self, order: dict[str, Any], answer: Answer, *, always: bool = False) -> bool:
        """Send an order to the broker over a pipe. ``answer`` gets the result, or None if it was refused. If too many
        are in progress this returns False, and ``answer`` gets nothing. ``always``: send it nevertheless; the service
        itself sends one such order after the other."""
        return self.ask(BROKER_NAME, order, answer, always=always)

    def ask(self, name: bytes, order: dict[str, Any], answer: Answer, *, always: bool = False) -> bool:
        """Send an order to a service of the broker over a link, or to the broker over a pipe."""
        if len(self._orders) >= ORDERS_MAX and not always:
            return False
        self._numbers += 1
        self._orders[self._numbers] = answer
        self._write(service(name, msgspec.json.encode(order), self._numbers))
        return True

    def pass_on(self, order: msgspec.Struct, answered: Passed) -> None:
        """Send an administrator's order to the broker over a pipe. ``answered`` gets the frame of its answer."""
        if len(self._passed) >= PASSED_MAX:
            raise ProtocolError(Reason.REQUESTS_OVER_LIMIT, f"{PASSED_MAX} orders are in progress")
        self._numbers += 1
        self._passed[self._numbers] = answered
        self._write(service(BROKER_NAME, msgspec.json.encode(order), self._numbers))

    def answer(self, frame: Frame, body: bytes, flags: int = 0) -> None:
        """Answer a request that ``serve`` got."""
        self._write(service(frame.topic, body, frame.sequence, frame.origin, flags=ServiceFlag.ANSWER | flags))

    def refuse(self, frame: Frame, reason: Reason, text: str = "") -> None:
        """Refuse a request that ``serve`` got."""
        if self._refused is not None:
            self._refused(reason)
        self.answer(frame, bodies.refusal(reason, text[:REFUSAL_LENGTH_MAX]), ServiceFlag.REFUSAL)

    def refuse_failed(self, frame: Frame, where: str, error: Exception, now: Instant) -> None:
        """A request that ``serve`` got raised, now or later: a bug of ours, which costs only this request."""
        self._outbox.guard.caught(where, error, now, frame.origin)
        self.refuse(frame, Reason.INTERNAL_ERROR, FAILED)

    def tell(self, asker: LinkId, watch: int, payload: bytes) -> None:
        """Send news of a watch to the client that asked for it. The service must attend, under the name of the pipe."""
        self._write(service(self._service, payload, watch, asker, flags=ServiceFlag.NEWS))

    def attend(self, service_name: str) -> None:
        """From now on, over a pipe, tell the ``attendant`` about ways, neighbours and requesters that disconnect. The
        name is that of the service at the broker."""
        assert self._attendant is not None
        self._service = service_name.encode()
        self.order({"do": "attend"}, lambda answer, now: None)

    def send(self, link: LinkId, payload: bytes, number: int = 0) -> None:
        """Send a message to the same service at a neighbour: one hop, in order, at most SERVICE_HOP_BYTES_MAX."""
        self._write(service(self._service, payload, number, link, flags=ServiceFlag.NEIGHBOUR))

    def give_up(self, reason: Reason) -> None:
        """End the link: the broker has been silent for too long."""
        self.fault = self.fault or reason
        self._outbox.hang_up(self.link, reason)

    def beat(self) -> None:
        """Send a keep-alive on a quiet link."""
        self._write(control(Kind.PING))

    def _write(self, frame: bytes) -> None:
        self._outbox.writes.append((self.link, [frame]))

    # -- receiving ----------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: Instant) -> None:
        """Bytes from the broker. It is trusted to follow the protocol; if it does not, ``fault`` is set."""
        for raw in self._splitter.split(data):
            frame = Frame(raw)
            try:
                self._hear(frame, now)
            except ProtocolError as error:
                self.fault = self.fault or error.reason
            except Exception as error:
                self._outbox.guard.caught(f"session, frame of kind {frame.kind}", error, now, self.link)
        self.fault = self.fault or self._splitter.fault

    def _hear(self, frame: Frame, now: Instant) -> None:
        match frame.kind:
            case Kind.DELIVERY:
                self._deliver(frame, now)
            case Kind.SERVICE if frame.flags & ServiceFlag.NEIGHBOUR:
                self._hear_neighbour(frame, now)
            case Kind.SERVICE if frame.flags & ServiceFlag.NEWS:
                self._hear_news(frame, now)
            case Kind.SERVICE if frame.flags & ServiceFlag.ANSWER:
                self._answered(frame, now)
            case Kind.SERVICE if frame.topic == BROKER_NAME:
                self._hear_word(frame, now)
            case Kind.SERVICE:
                self._receive_request(frame, now)
            case Kind.WELCOME:
                self.welcomed = True
                if self._welcome is not None:
                    self._welcome(bodies.decode(bodies.Welcome, frame.payload), now)
            case Kind.STORED if self._stored is not None:
                self._stored(frame, now)
            case Kind.PING:
                self._write(control(Kind.PONG, frame.sequence))
            case Kind.REFUSED:
                refusal = bodies.decode(bodies.Refusal, frame.payload)
                if len(self.refused) < 8:
                    self.refused.append(f"{refusal.reason}: {refusal.text}")
            case Kind.GOODBYE:
                goodbye = bodies.decode(bodies.Goodbye, frame.payload)
                if not goodbye.grace_ms:
                    self.fault = bodies.reason_of(goodbye.code)
                elif self._warned is not None:
                    self._warned(now)

    def _receive_request(self, frame: Frame, now: Instant) -> None:
        """A client's request. Whatever it contains, it is answered or refused, and nothing else happens."""
        try:
            if self._requests is None or self._serve is None:
                raise ProtocolError(Reason.SERVICE_UNKNOWN, "this service takes no requests")
            request = self._requests.decode(frame.payload)
            self._serve(frame, request, decode_asker(frame.headers), now)
        except ProtocolError as error:
            self.refuse(frame, error.reason, error.detail)
        except ConditionError as error:
            self.refuse(frame, error.reason, error.detail)
        except UsageError as error:
            self.refuse(frame, self._requests.malformed if self._requests else Reason.BODY_MALFORMED, str(error))
        except Exception as error:
            self.refuse_failed(frame, f"request to {frame.topic.decode(errors='replace')}", error, now)

    def _hear_neighbour(self, frame: Frame, now: Instant) -> None:
        if self._attendant is None:
            return
        if frame.flags & ServiceFlag.REFUSAL:
            try:
                code = bodies.decode(bodies.Refusal, frame.payload).code
            except ProtocolError:  # written by the neighbour, not by our broker
                code = Reason.BODY_MALFORMED
            self._attendant.hear_refusal(frame.origin, frame.sequence, bodies.reason_of(code), now)
        else:
            self._attendant.hear_neighbour(frame.origin, frame.payload, now)

    def _hear_news(self, frame: Frame, now: Instant) -> None:
        if not frame.flags & ServiceFlag.REFUSAL:
            if self._news is not None:
                self._news(frame, now)
        elif self._attendant is not None:
            self._attendant.hear_untold(frame.origin, frame.sequence, now)

    def _hear_word(self, frame: Frame, now: Instant) -> None:
        word = decode_word(frame.payload)
        if self._attendant is None:
            return
        if word.ways is not None:
            self._attendant.hear_ways(word.ways, now)
        if word.ended:
            self._attendant.hear_end(word.ended, now)

    def _deliver(self, frame: Frame, now: Instant) -> None:
        numbers = unpack(f"<{len(frame.headers) // 4}I", frame.headers[: len(frame.headers) // 4 * 4])
        if self._take is not None and (not numbers or any(number in self._whole for number in numbers)):
            self._take(frame.payload, now)
            numbers = tuple(number for number in numbers if number not in self._whole)
            if not numbers:
                return
        for publication in _publications(frame.payload):
            for number in numbers:
                deliver = self._delivers.get(number)
                if deliver is not None:
                    self._deliver_one(deliver, publication, now)

    def _deliver_one(self, deliver: Deliver, publication: Publication, now: Instant) -> None:
        try:
            deliver(publication, now)
        except Exception as error:  # the publication is dropped alone
            self._outbox.guard.caught("session, publication", error, now, self.link)

    def _answered(self, frame: Frame, now: Instant) -> None:
        passed = self._passed.pop(frame.sequence, None)
        if passed is not None:
            passed(frame, now)
            return
        answer = self._orders.pop(frame.sequence, None)
        if answer is None:
            return
        try:
            said = None if frame.flags & ServiceFlag.REFUSAL else msgspec.json.decode(frame.payload)
        except UNREADABLE:
            raise ProtocolError(Reason.BODY_MALFORMED, "an answer that is not JSON") from None
        answer(said, now)


def _publications(data: bytes) -> list[Publication]:
    """The publications in whole EVENT frames; ProtocolError if a frame is incomplete."""
    found, start = [], 0
    while start < len(data):
        if len(data) - start < HEAD_BYTES:
            raise ProtocolError(Reason.FRAME_TOO_SHORT, "a delivery ends within a publication")
        end = start + 4 + LENGTH.unpack_from(data, start)[0]
        _, kind, flags, topic_length, origin, sequence, header_length = HEAD.unpack_from(data, start)
        headers = start + HEAD_BYTES + topic_length
        body = headers + header_length
        if kind != Kind.EVENT or end > len(data) or body > end:
            raise ProtocolError(Reason.FRAME_TOO_SHORT, "a delivery consists of whole publications only")
        topic = data[start + HEAD_BYTES : headers].decode(errors="replace")
        found.append(Publication(topic, data[body:end], origin, sequence, data[headers:body], flags))
        start = end
    return found
