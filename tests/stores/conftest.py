"""A PostgreSQL server for stores that keep there."""

from tests.vaults.conftest import postgres

__all__ = ["postgres"]
