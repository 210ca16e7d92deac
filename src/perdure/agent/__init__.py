"""A small coding agent: the loop, its tools, and what they may do (LIB-1, level 3)."""
