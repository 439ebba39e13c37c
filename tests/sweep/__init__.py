"""Shipped scenarios over the seeds that seeds.toml lists."""
