"""Values that travel, and their senders: frozen, with no behaviour beyond questions about themselves."""
