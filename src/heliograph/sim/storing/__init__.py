"""Publishers and readers of stores for simulated runs: a minimal implementation of the protocol, independent of
client/."""
