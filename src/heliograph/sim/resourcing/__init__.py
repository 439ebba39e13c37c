"""Owners of resources and requesters, as scenarios list them."""
