"""For the site: what a page says of files outside docs/ stays as text, since the site does not hold them."""

from __future__ import annotations

import re
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""
    up = page.file.src_uri.count("/") + 1
    outside = re.compile(rf"\[((?:[^\[\]]|\[[^\]]*\])+)\]\((?:\.\./){{{up}}}[^)]*\)")
    return outside.sub(r"\1", markdown)
