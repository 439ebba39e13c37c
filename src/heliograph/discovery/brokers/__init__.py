"""Finding a broker: directories, the responder at each broker, and the finder that asks and chooses."""
