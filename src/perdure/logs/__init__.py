"""Readers of other programs' logs (ENG-6): the bytes of a file become `Recording`s; the source is never edited."""
