"""The face of the library: sessions and agents as programs use them, over the engine and this machine (LIB-5)."""
