"""The demo: shows a broker, clients, a network and a simulation at work."""
