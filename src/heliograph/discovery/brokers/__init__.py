"""Broker discovery: directories, the responder at each broker, and the search that asks and chooses."""
