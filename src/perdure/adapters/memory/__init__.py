"""Memory directories, notes and instruction files on this disk."""
