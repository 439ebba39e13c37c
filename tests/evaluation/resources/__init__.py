"""Tests of the evaluation of resource discovery."""
