"""Instruction files: the CLAUDE.md family (INS-1 to INS-5). Pure: what is on disk comes through a `Reader`."""
