"""Publishers and readers of stores for simulated runs: a minimal implementation, independent of client/."""
