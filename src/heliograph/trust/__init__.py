"""Proof of identity: certificates and tokens, as pure functions over bytes and text."""
