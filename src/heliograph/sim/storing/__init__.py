"""Publishers and readers of stores, for simulated runs: the protocol in the plainest form, apart from client/."""
