"""The simulated driver: a deterministic world in virtual time; file names as in live/ where the role is the same."""
