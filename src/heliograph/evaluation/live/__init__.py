"""The evaluation on real sockets: broker processes on loopback, and relays that add wide-area delays."""
