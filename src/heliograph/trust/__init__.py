"""Proof of identity and of origin: certificates, tokens, signatures, seals; pure, over bytes and text."""
