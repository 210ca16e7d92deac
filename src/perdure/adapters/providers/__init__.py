"""Models over the wire, and models that need none."""
