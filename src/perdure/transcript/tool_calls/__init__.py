"""What tool calls of common agents say and did: the one reader of them, for every room above (RST-10, CMP-5)."""
