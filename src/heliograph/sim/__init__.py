"""The simulated driver: a deterministic world in virtual time. Files are named as in live/ if the role is the same."""
