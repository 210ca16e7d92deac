"""Keeping a memory: what of a conversation is worth saving, whose word it is, and putting in order what is there."""
