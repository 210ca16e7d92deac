"""What was said: messages, edits and records, their bytes on disk, and readers of other programs' logs. Pure."""
