"""Values that are sent, and their senders: frozen, with no behaviour but questions about themselves."""
