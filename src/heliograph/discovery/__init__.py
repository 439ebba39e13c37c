"""Discovery of brokers, topics and resources, on top of the network."""
