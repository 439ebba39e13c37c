"""Topologies: the brokers of a network and their links, read from files or generated."""
