"""The live driver on real sockets and in real processes."""
