"""Network time: one clock that all nodes read, each with a stated error."""
