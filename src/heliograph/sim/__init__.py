"""The simulated driver: a deterministic world in virtual time. The same file names as live/ where the role is the same."""
