"""Payloads as columns: what is in the payload of a publication, read by a schema."""
