"""Tests of the benchmarks themselves: a load generator that overlooks a lost frame would flatter everyone."""
