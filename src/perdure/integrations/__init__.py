"""Perdure in other frameworks: a module for each, which imports that framework (LIB-4, LIB-7)."""
