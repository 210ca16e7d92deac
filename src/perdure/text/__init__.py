"""Tools for text that every room may use: words, stems, patterns, Markdown. Pure, and below everything that knows what
a session is.
"""
