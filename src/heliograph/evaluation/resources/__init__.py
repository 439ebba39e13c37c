"""The experiments of the paper on resources."""
