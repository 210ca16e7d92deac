"""What a model accepts, as data, and how a broken rule is reported."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name, where, and the text the real server would answer with."""

    rule: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """A broken rule inside one message. `path` is relative to it, so the finding can be kept with its bytes."""

    rule: str
    path: str
    said: str

    def at(self, base: str) -> Violation:
        path = ".".join(part for part in (base, self.path) if part)
        return Violation(self.rule, path, f"{path}: {self.said}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRules:
    """Limits and switches of one model. The defaults are a 200,000-token model of 2026."""

    window_tokens: int = 200_000
    max_output_tokens: int = 64_000
    min_cacheable_tokens: int = 1024
    max_body_bytes: int = 32_000_000
    max_messages: int = 100_000
    max_markers: int = 4
    max_media: int | None = None  # None: 100, or 600 for windows over 200,000
    max_image_bytes: int = 5 * 1024 * 1024  # of the base64 text
    max_image_side: int = 8000
    many_images: int = 20  # above this many images ...
    many_images_side: int = 2000  # ... each must be this small
    max_media_bytes: int = 32_000_000  # all base64 text of a request together
    tool_id_pattern: str = r"[a-zA-Z0-9_-]+"
    prefill: bool = False  # may a request end with an assistant message
    system_messages: bool = True  # role "system" in the middle of a conversation
    sampling: bool = False  # temperature, top_p, top_k (gone since API version 2026-10-21)
    forced_tool_choice: bool = True
    output_must_fit: bool = False  # older models: input + max_tokens over the window is refused
    allow_unknown: bool = False  # accept block types and fields that are not in the tables

    @property
    def media_limit(self) -> int:
        if self.max_media is not None:
            return self.max_media
        return 100 if self.window_tokens <= 200_000 else 600
