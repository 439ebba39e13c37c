"""Discovery: finding brokers, and later topics and resources, on top of the network."""
