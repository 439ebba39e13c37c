"""The broker machine against a slow oracle, and against peers that break the rules."""
