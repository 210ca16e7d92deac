"""Checkpoints of an agent's files on this disk: a store of git objects beside the session, and rewinds (CKP-1 to 6)."""
