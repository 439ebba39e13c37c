"""The evaluation on real sockets: broker processes on loopback, and relays that make loopback as wide as the earth."""
