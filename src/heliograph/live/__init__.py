"""The live driver: asyncio, real sockets, real time. Files have the same names as in sim/ where the role is the
same."""
