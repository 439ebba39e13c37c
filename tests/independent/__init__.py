"""An independent check of live networks: a client, an oracle and topologies that share no code with heliograph."""
