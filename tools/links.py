"""A hook of MkDocs: links into the source tree lead nowhere from the site; keep their words."""

import re
from typing import Any

_LINK_OUT_OF_DOCS = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn `[words](../src/…)` into `words`."""
    return _LINK_OUT_OF_DOCS.sub(r"\1", markdown)
