"""What may be kept, and on whose word: secrets, planted instructions, and the gate before the memory. Pure."""
