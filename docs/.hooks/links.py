"""For the site: what a page says of files outside docs/ stays as text, since the site does not hold them."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\]\((?:\.\./)[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""
    return _OUTSIDE.sub(r"\1", markdown)
