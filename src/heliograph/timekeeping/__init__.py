"""Network time: one clock for all nodes, each of which knows it with a stated error."""
