"""The wire: golden bytes, round trips, and a client written from the protocol page alone."""
