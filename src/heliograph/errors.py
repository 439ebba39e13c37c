"""Errors: the party at fault, and the reasons that a peer, a log line and a counter share.

In:    nothing.
Out:   Reason (one enum for wire, log and counter) and the exceptions.
State: none.
Not here: how an error is handled (the part where it occurs decides).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class Reason(IntEnum):
    """Why something was refused or ended. Numbers are part of the protocol: they are never reused."""

    # 1xx: the peer broke the rules of the wire.
    FRAME_TOO_SHORT = 100
    FRAME_OVER_LIMIT = 101
    TOPIC_OVER_FRAME = 102
    HEADERS_OVER_FRAME = 103
    KIND_UNKNOWN = 104
    KIND_UNEXPECTED = 105
    FLAGS_UNKNOWN = 106
    BODY_MALFORMED = 107
    VERSION_UNSUPPORTED = 108
    FEATURE_UNSUPPORTED = 109
    ORIGIN_FOREIGN = 110
    TOPIC_INVALID = 111
    FILTER_INVALID = 112
    LANGUAGE_UNSUPPORTED = 113
    SUBSCRIPTION_TAKEN = 114
    SUBSCRIPTION_UNKNOWN = 115
    HEADERS_MALFORMED = 116
    CONDITION_INVALID = 117
    CONDITION_OVER_LIMIT = 118

    # 2xx: the peer may not do this.
    CREDENTIAL_MISSING = 200
    CREDENTIAL_WRONG = 201
    CERTIFICATE_EXPIRED = 202
    CERTIFICATE_UNTRUSTED = 203
    ROLE_MISSING = 204
    PUBLISH_DENIED = 205
    SUBSCRIBE_DENIED = 206
    ASK_DENIED = 207
    SIGNATURE_WRONG = 208
    REPLAYED = 209
    SEAL_BROKEN = 210
    CERTIFICATE_UNKNOWN = 211
    CERTIFICATE_NOT_YET_VALID = 212
    CERTIFICATE_MALFORMED = 213
    STALE = 214
    SENDER_UNPROVEN = 215
    REALM_FOREIGN = 216
    CERTIFICATE_REVOKED = 217
    POSSESSION_UNPROVEN = 218
    GRANT_INVALID = 219
    GRANT_EXPIRED = 220
    GRANT_REVOKED = 221
    GRANT_TOO_WIDE = 222
    GRANT_FOREIGN = 223
    OWNER_OTHER = 224
    SIGNER_NO_DIRECTORY = 225
    DISCOVERY_DENIED = 226
    SIGNER_UNWANTED = 227
    NAME_FOREIGN = 236
    NAME_UNPROVEN = 237

    # 3xx: a limit with a name was reached.
    HANDSHAKE_TOO_SLOW = 300
    HANDSHAKE_OVER_BUDGET = 301
    LINKS_OVER_LIMIT = 302
    SUBSCRIPTIONS_OVER_LIMIT = 303
    SLOW_CONSUMER = 304
    SILENT = 305
    PUBLICATION_EXPIRED = 306
    DUPLICATE = 307
    REQUESTS_OVER_LIMIT = 308
    RATE_OVER_LIMIT = 309
    REQUEST_REPEATED = 310
    BUDGET_SPENT = 311
    BROKERS_OVER_LIMIT = 312
    SOURCE_OVER_SHARE = 320
    NAMES_OVER_LIMIT = 330
    CHANNELS_OVER_LIMIT = 331
    BATCHES_OVER_LIMIT = 332
    STORES_OVER_LIMIT = 333
    SPANS_OVER_LIMIT = 334
    SERVICE_OVER_LIMIT = 340
    RESOURCES_OVER_LIMIT = 341
    RESOURCE_REQUESTS_OVER_LIMIT = 342
    RESOURCE_ATTRIBUTES_OVER_LIMIT = 343
    RESOURCE_VALUES_OVER_LIMIT = 344
    DESCRIPTORS_OVER_LIMIT = 345
    TOPICS_OVER_QUOTA = 346
    SEARCHES_OVER_LIMIT = 347
    RIGHTS_OVER_LIMIT = 348
    SEARCH_OVER_BUDGET = 349

    # 4xx: how a link or a node starts and ends.
    GOODBYE = 400
    CLOSED = 401
    RESET = 402
    DRAINING = 403
    STOPPING = 404
    TAKEN_OVER = 405
    DIAL_FAILED = 406
    TLS_FAILED = 407
    TIME_OUT = 408
    ADDRESS_IN_USE = 409
    OVERLOADED = 420

    # 5xx: this node cannot do this for any peer.
    SERVICE_UNKNOWN = 500
    SERVICE_GONE = 501
    VAULT_MISSING = 502
    SOCKET_MISSING = 503
    CONFIG_INVALID = 504
    JOB_FAILED = 505
    QUESTION_UNKNOWN = 506
    CLUSTER_FULL = 507
    NAME_TAKEN = 508
    RESPONDERS_MISSING = 509
    INTERNAL_ERROR = 510
    SOCKET_FAILED = 520
    DATAGRAM_TOO_LARGE = 521
    DATAGRAM_UNSENT = 522
    BROKER_NOT_FOUND = 530
    ADVERTISEMENT_UNWANTED = 531
    ADVERTISEMENT_STALE = 532
    NETWORK_OTHER = 540
    NETWORKS_SEVERAL = 541
    INCARNATION_AHEAD = 542
    VAULT_FULL = 550
    VAULT_FAILED = 551
    VAULT_DAMAGED = 552
    VAULT_LOCKED = 553
    VAULT_FOREIGN = 554
    VAULT_NEWER = 555
    VAULT_READ_ONLY = 556
    STORE_UNKNOWN = 560
    STORE_MISSING = 561
    CHAIN_BROKEN = 562
    POSITION_UNKNOWN = 563
    NAME_UNKNOWN = 564
    CHANNEL_UNKNOWN = 565
    BATCH_INCOMPLETE = 566
    STORE_RESET = 567
    BATCH_FOREIGN = 568
    NAME_DIFFERS = 569

    # 62x-64x: topics and rights.
    TOPIC_UNKNOWN = 620
    TOPIC_EXPIRED = 621
    TOPIC_WITHDRAWN = 622
    TOPIC_OLDER = 623
    TOPIC_UNWANTED = 624
    SYNOPSIS_INVALID = 625
    DESCRIPTORS_INVALID = 626
    QUERY_INVALID = 627
    DIRECTORIES_MISSING = 628
    CREATION_FAILED = 629
    CREATION_REFUSED = 630
    ADVERTISEMENT_UNSTORED = 631
    DOCUMENT_INVALID = 632
    QUERY_OVER_TIME = 633
    QUERY_LANGUAGE_MISSING = 634
    TOPIC_KEY_MISSING = 635
    TOPIC_ID_UNBOUND = 636
    TOPIC_KEY_UNSIGNED = 637

    # 6xx: resources: resource discovery refuses a request, or cannot carry it out.
    RESOURCE_CONDITION_UNFIT = 600
    RESOURCE_UNKNOWN = 601
    RESOURCE_FOREIGN = 602
    RESOURCE_OUT_OF_RANGE = 603
    RESOURCE_OUTDATED = 604
    RESOURCE_TABLE_STALE = 605
    RESOURCE_REQUEST_UNKNOWN = 606
    RESOURCE_CALL_MALFORMED = 607

    @property
    def word(self) -> str:
        """The reason as it is written in JSON, logs and metrics."""
        return self.name.lower()


class HeliographError(Exception):
    """Base of all errors that this package raises."""


class ProtocolError(HeliographError):
    """The peer broke the rules. The link ends; the broker does not."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason.word}: {detail}" if detail else reason.word)
        self.reason = reason
        self.detail = detail


class UsageError(HeliographError):
    """The caller made an invalid request. Raised at once; nothing was done."""


class ConditionError(UsageError):
    """The text of a condition is invalid; the message points at the character."""

    def __init__(
        self, problem: str, text: str = "", position: int = 0, reason: Reason = Reason.CONDITION_INVALID
    ) -> None:
        self.problem = problem
        self.text = text
        self.position = position  # 0 is the first character
        self.reason = reason
        super().__init__(f"{self.detail}\n{self.caret}" if text else self.detail)

    @property
    def detail(self) -> str:
        """What is wrong and where, on one line."""
        return f"{self.problem} (at character {self.position + 1})" if self.text else self.problem

    @property
    def caret(self) -> str:
        """Two lines: the text around the place, and a caret under it."""
        start = max(0, self.position - 50)
        around = self.text[start : self.position + 30]
        shown = "".join(character if character.isprintable() else " " for character in around)
        return f"  {shown}\n  {' ' * (self.position - start)}^"


class ConfigError(HeliographError):
    """The configuration has problems; all of them are listed."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


class UnreadableError(UsageError, ConfigError):
    """A named file does not exist, or cannot be read."""


class RefusedError(HeliographError):
    """The broker refused a request; ``reason`` says why, and the text says what to do."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason.word}: {detail}" if detail else reason.word)
        self.reason = reason
        self.detail = detail


class NoRespondersError(RefusedError):
    """No subscriber was there to answer a request; reported at once, without waiting for a time-out."""


class NotConnectedError(HeliographError):
    """There is no link to a broker and none could be made."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason.word}: {detail}" if detail else reason.word)
        self.reason = reason
        self.detail = detail


class ClosedError(HeliographError):
    """The client or subscription was closed before or during this call."""
