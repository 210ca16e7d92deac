"""Replay: recorded sessions driven through the engine as if live, and what came of it (CLI-2)."""
