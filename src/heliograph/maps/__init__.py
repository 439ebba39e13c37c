"""Readable maps of a network: merged reports of brokers, as text and as SVG."""
