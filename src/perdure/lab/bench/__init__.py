"""The bench: what survives a compaction, measured without a model on the user's own recordings (QLT-1)."""
