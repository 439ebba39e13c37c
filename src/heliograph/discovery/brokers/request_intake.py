"""Request intake: a directory acknowledges requests for a broker, hands them to brokers, and relays answers.

In:    requests whose address is proven; answers that brokers send by way of the directory.
Out:   acknowledgements and refusals; requests to brokers, by datagram, link and topic; relayed answers.
State: the last requests with their requesters, and how many more answers each gets.
Not here: cookies and rates (directory.py), which brokers are known (known.py) and near (landmarks.py).
Paper: [brokers] §3 and §4.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from heliograph.discovery.anchors import Anchors
from heliograph.discovery.brokers import messages
from heliograph.discovery.brokers.config import DirectoryConfig
from heliograph.discovery.brokers.directory_output import DirectoryOutput
from heliograph.discovery.brokers.known import KnownBrokers
from heliograph.discovery.brokers.known_broker import KnownBroker
from heliograph.discovery.brokers.messages import (
    DATAGRAM_BYTES_MAX,
    LISTED_MAX,
    ON_TOPIC,
    REQUEST_TOPIC,
    Acknowledgement,
    CertificateRequest,
    DiscoveryRequest,
    Message,
    MessageKind,
    Relay,
    Spread,
)
from heliograph.discovery.brokers.signing import Signing
from heliograph.discovery.repeats import Repeats
from heliograph.errors import ProtocolError, Reason
from heliograph.machine import Address, LinkId

NEAR_MAX = 20  # brokers asked because they are near: twice as many as are pinged


@dataclass(slots=True)
class Requester:
    """The party that sent a request, and how many more answers are passed on to it."""

    reply: Address
    link: LinkId | None
    budget: int
    acknowledgement: Acknowledgement
    cookie: bytes  # that it presented, and by which it recognises us


class RequestIntake:
    """The requests of one directory."""

    def __init__(
        self,
        config: DirectoryConfig,
        known: KnownBrokers,
        anchors: Anchors,
        signing: Signing,
        output: DirectoryOutput,
        counts: Counter[str],
    ) -> None:
        self._config = config
        self._known = known
        self._anchors = anchors
        self._signing = signing
        self._output = output
        self._counts = counts
        self._requests: Repeats[Requester] = Repeats(config.requests_remembered)

    def __len__(self) -> int:
        return len(self._requests)

    def reload(self, config: DirectoryConfig) -> None:
        """Apply new settings."""
        self._config = config
        self._requests.limit(config.requests_remembered)

    def take_up(self, message: Message, reply: Address, link: LinkId | None, wall_ns: int | None) -> None:
        """A request from a proven address: acknowledge it, and send it to brokers once per attempt."""
        message = self._signing.opened(message)
        claimed = self._signing.glance(message, DiscoveryRequest)
        if not self._requests.is_new(claimed.id, reply, claimed.attempt):
            known = self._requests.get(claimed.id, reply)
            assert known is not None
            self._output.answer(reply, link, known.acknowledgement, message.cookie)
            raise ProtocolError(Reason.REQUEST_REPEATED)
        try:
            request = self._read(message, wall_ns)
        except ProtocolError as error:
            if error.reason is Reason.CERTIFICATE_UNKNOWN and link is None:
                self._output.send(reply, messages.write(CertificateRequest(self._signing.hash_of(message))))
            elif error.reason is not Reason.REPLAYED:  # whoever copied it may have been first: a new attempt will do
                refusal = Acknowledgement(
                    claimed.id, claimed.attempt, self._config.name, reason=error.reason, text=error.detail[:200]
                )
                self._output.answer(reply, link, refusal, message.cookie)
            raise
        chosen, landmarks, last = self._chosen(request)
        brokers = max(self._known.count(request.network), len(chosen))
        listed = b"" if last else messages.marks_of(self._known.names(LISTED_MAX, request.network))
        said = Acknowledgement(
            *(request.id, request.attempt, self._config.name, brokers, len(chosen)), landmarks=landmarks, listed=listed
        )
        requester = Requester(reply, link, request.budget, said, message.cookie)
        self._requests.add(request.id, reply, request.attempt, requester)
        self._output.answer(reply, link, said, message.cookie)
        self._hand_over(message, request, reply, chosen, last)

    def _read(self, message: Message, wall_ns: int | None) -> DiscoveryRequest:
        request, holder = self._signing.read(message, DiscoveryRequest, wall_ns)
        if self._config.private and holder is None:
            raise ProtocolError(Reason.CREDENTIAL_MISSING, "this directory is private: sign the request")
        self._signing.check_fresh(request, holder, wall_ns)
        if request.network and not self._known.count(request.network) and not self._anchors.sessions:
            raise ProtocolError(Reason.NETWORK_OTHER, f"no broker of it is known here{self._known.describe_networks()}")
        return request

    def _chosen(self, request: DiscoveryRequest) -> tuple[list[KnownBroker], list[str], bool]:
        """The brokers that get a request, landmarks for the requester to measure, and whether only they answer.

        If there are more brokers than answers are wanted, the landmarks answer first, and then brokers near the
        requester. Otherwise, or if that is not possible, the brokers spread the request through their network.
        """
        known, marks = self._known, self._known.landmarks
        if self._config.injection == "all":
            return known.all_of(request.budget, request.network), [], False
        if request.network and known.count(request.network) < known.measured:
            choose = known.several if request.attempt > 1 else known.ends
            return choose(request.budget, request.network), [], False  # landmarks are not specific to a network
        if request.measures and marks.ready and known.measured > request.budget:
            return marks.brokers, marks.addresses, True
        near = marks.near(request.distances, min(request.budget, NEAR_MAX)) if request.distances else []
        if near:
            return near, [], True
        return known.several(request.budget) if request.attempt > 1 else known.ends(request.budget), [], False

    def _hand_over(
        self, message: Message, request: DiscoveryRequest, reply: Address, chosen: list[KnownBroker], last: bool
    ) -> None:
        """Send a request to brokers: on the topic if we have links, and by link or datagram to the chosen ones."""
        relay = (self._config.advertise or ON_TOPIC) if request.relay else ""
        message = replace(message, chain=self._signing.chain_for(message))
        spread = Spread(messages.bare(message), *reply, self._config.name, relay, last)
        self._counts["requests"] += 1
        if self._anchors.sessions and not last:
            self._anchors.publish(REQUEST_TOPIC, messages.write(spread, pad=False))
        brief = Spread(messages.bare(replace(message, chain=b"")), *reply, self._config.name, relay, last)
        fits = len(messages.write(spread)) <= DATAGRAM_BYTES_MAX
        body = messages.encode(spread if fits else brief)
        for known in chosen:
            if known.link is not None:
                self._counts["injected"] += 1
                self._output.write(known.link, messages.write(spread, pad=False))
            elif known.address is not None and any(known.cookie):
                self._counts["injected"] += 1
                self._output.send(known.address, messages.pack(Message(MessageKind.SPREAD, 0, known.cookie, body)))

    def relay(self, message: Message, host: str) -> None:
        """An answer for a requester that brokers may not reach: pass it on while its budget lasts."""
        relay = messages.decode(Relay, message.body)
        requester = self._requests.get(relay.id, (relay.to_host, relay.to_port))
        if requester is None or requester.budget <= 0:
            raise ProtocolError(Reason.BUDGET_SPENT, "no requester waits for this answer")
        response = messages.unpack(relay.response, padded=False)
        if response.kind is not MessageKind.RESPONSE:
            raise ProtocolError(Reason.KIND_UNEXPECTED, "only answers are relayed")
        requester.budget -= 1
        self._counts["relayed"] += 1
        cookie = requester.cookie
        whole = messages.write(Relay(relay.id, messages.bare(response), host), cookie, pad=False)
        brief = messages.write(Relay(relay.id, messages.bare(replace(response, chain=b"")), host), cookie)
        if requester.link is not None:
            self._output.write(requester.link, whole)
        elif len(brief) <= DATAGRAM_BYTES_MAX:
            self._output.send(requester.reply, whole if len(whole) <= DATAGRAM_BYTES_MAX else brief)
