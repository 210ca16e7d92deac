"""What the engine needs from the world. Adapters implement these; the engine sees nothing else of the machine."""
