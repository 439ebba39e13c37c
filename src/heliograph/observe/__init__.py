"""Notes made visible: log lines and counters."""
