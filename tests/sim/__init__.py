"""Tests of the simulated driver."""
