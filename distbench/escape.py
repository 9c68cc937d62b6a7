"""Names from user code, made safe to print and to name folders by."""

from __future__ import annotations

import hashlib
import unicodedata

_NAME_BYTES = 200
"""What a folder's name may take: file systems have 255 for one."""


def escape_controls(text: str, *, keep: str = "") -> str:
    r"""Replace what steers a terminal by a visible escape such as `\x1b`.

    Control and format characters (among them those that reverse the direction of
    text), surrogates and line separators never reach a terminal or a file.

    Args:
        text: Any text.
        keep: Characters that stay, such as a line feed.
    """
    return "".join(c if c in keep or not _is_control(c) else _spell(c) for c in text)


def cut_name(name: str) -> str:
    """A name that a file system takes: a digest ends one that is too long."""
    raw = name.encode("utf-8", "surrogatepass")
    if len(raw) <= _NAME_BYTES:
        return name
    digest = hashlib.sha256(raw).hexdigest()
    return raw[: _NAME_BYTES - len(digest)].decode("utf-8", "ignore") + digest


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _spell(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
