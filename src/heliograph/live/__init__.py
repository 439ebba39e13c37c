"""The live driver: asyncio, real sockets, real time. The same file names as sim/ where the role is the same."""
