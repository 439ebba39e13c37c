"""Discovering resources: four models and shared answers."""
