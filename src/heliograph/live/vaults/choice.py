"""The choice of a vault's back end: SQLite for a folder, PostgreSQL for a URL.

In:    a Vault: its name and place.
Out:   a Backend that is not open yet; VaultError if its library is not installed.
State: none.
Not here: what a back end does (backend.py), SQLite (sqlite.py), PostgreSQL (postgres.py).

Back ends are imported only when they are needed: most nodes have no vault, and PostgreSQL is an extra.
"""

from __future__ import annotations

from heliograph.errors import Reason
from heliograph.live.vaults.backend import Backend, VaultError
from heliograph.model.places import POSTGRES
from heliograph.vault import Vault


def make_backend(vault: Vault) -> Backend:
    """The back end for this vault's place. VaultError if a library that it needs is not installed."""
    if not vault.place.startswith(POSTGRES):
        from heliograph.live.vaults.sqlite import SqliteVault

        return SqliteVault(vault)
    try:
        from heliograph.live.vaults.postgres import PostgresVault
    except ImportError as error:
        problem = f"PostgreSQL needs the extra: pip install 'heliograph[postgres]' ({error})"
        raise VaultError(Reason.VAULT_MISSING, problem) from None
    return PostgresVault(vault)
