"""One page that shows a session: tokens over turns, what fired, what it cost, what was dropped (CLI-4)."""
