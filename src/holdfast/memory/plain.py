"""Text without characters that nobody sees (MEM-2)."""

from __future__ import annotations

import re

# C0 and C1 but for tab and line feed; what reorders text or hides in it (bidirectional controls, zero width, tags).
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2060\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")


def controls_removed(text: str) -> str:
    """The text without control characters and invisible ones, its line breaks all `\\n`."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return _CONTROLS.sub("", text)
