"""The live driver: asyncio, real sockets, real time. Files are named as in sim/ where the role is the same."""
