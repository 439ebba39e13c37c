"""A real browser for tests: where it is, how it is opened, what is asked of pages."""
