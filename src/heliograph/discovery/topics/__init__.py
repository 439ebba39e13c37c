"""Creating and finding topics."""
