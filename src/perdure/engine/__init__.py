"""The shell that awaits: sessions, turns and compaction over ports. It sees the machine only through them."""
