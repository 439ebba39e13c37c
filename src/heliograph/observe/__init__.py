"""Makes notes visible: log lines and counters."""
