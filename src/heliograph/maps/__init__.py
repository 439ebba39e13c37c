"""Maps of a network for people: reports of brokers put together, as text and as SVG."""
