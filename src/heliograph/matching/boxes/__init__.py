"""Boxes: conjunctions of predicates as one interval per attribute, and an index over a million of them."""
