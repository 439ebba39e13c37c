"""The demo: a broker, clients, a network and a simulation, shown at work."""
