"""Back ends of vaults. Nothing outside this folder knows SQLite or PostgreSQL."""
