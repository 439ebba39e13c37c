"""Back ends of vaults. SQLite and PostgreSQL are used only in this folder."""
