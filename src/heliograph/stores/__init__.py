"""Stores: what was acknowledged is never lost."""
