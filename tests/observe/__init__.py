"""Notes become log lines and counters."""
