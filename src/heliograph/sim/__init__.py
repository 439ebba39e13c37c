"""The simulated driver: a deterministic world in virtual time. Files are named as in live/ where the role is the
same."""
