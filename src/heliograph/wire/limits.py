"""Limits of the wire: every length is checked against one of these before memory is allocated.

In:    nothing.
Out:   named numbers, with their reasons.
State: none.
Not here: limits that an operator sets (broker/config.py).
"""

HEAD_BYTES = 28
FRAME_BYTES_MAX = 1 << 20 | 1 << 16  # 1 MiB of payload and what precedes it; larger payloads are sent as fragments
PAYLOAD_BYTES_MAX = 1 << 20
HEADERS_BYTES_MAX = 1 << 16
CONTROL_BYTES_MAX = 1 << 16  # a control frame's JSON body
DELIVERY_BYTES = 1 << 18  # frames in one delivery, so that a client's buffer stays small; one larger frame goes alone
DELIVERY_BYTES_MAX = FRAME_BYTES_MAX + (1 << 18) + (1 << 10)  # that frame, all matching subscription numbers, a head
PARCEL_BYTES_MAX = 1 << 16  # between brokers; one larger frame is a parcel of its own
SUBSCRIPTIONS_PER_DELIVERY_MAX = 16_000  # numbers named in one delivery: 64 KiB with its head
TRACE_MAX = 16  # brokers named in a parcel's trace
CLUSTERS_MAX = 64  # clusters named as a parcel's targets
GROUPS_MAX = 64  # groups named in a parcel
DESTINATIONS_MAX = 64  # inboxes that one directed publication may name
SERVICE_HOP_BYTES_MAX = 1 << 16  # payload of a frame from a service to the same service at a neighbour
TIME_BYTES_MAX = 512  # of network time in a PONG
AGE_MAX = (1 << 62) - 1  # incarnations (milliseconds since 1970) and numbers of records and interests
COST_MAX = 1 << 32  # of a path between brokers, in microseconds: more than an hour
LINKS_PER_BROKER_MAX = 4_096  # to other brokers, in one broker's record in the map
ADDRESS_LENGTH_MAX = 256  # of the address at which clients dial a broker
