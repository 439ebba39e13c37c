"""Stores: reliable publications. What a store has acknowledged is never lost."""
