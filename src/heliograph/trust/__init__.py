"""Proof of identity and of origin: certificates, tokens, signatures and seals, as pure functions of bytes and text."""
