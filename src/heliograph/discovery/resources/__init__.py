"""Resource discovery: four models of requests, with shared answers."""
