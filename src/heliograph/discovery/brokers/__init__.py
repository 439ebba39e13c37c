"""Finding a broker: directories, the responder at each broker, and the search that asks and chooses."""
