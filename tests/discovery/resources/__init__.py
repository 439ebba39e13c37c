"""Tests of resource discovery."""
