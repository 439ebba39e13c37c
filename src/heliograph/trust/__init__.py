"""Proof of identity and of what was said: certificates, tokens, signatures, seals; pure, over bytes and text."""
