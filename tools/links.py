"""A hook of MkDocs: links into the source tree lead nowhere from the site; keep their words.

Links to notebooks lead to their pages (`notebooks.py`).
"""

import re
from typing import Any

_NOTEBOOK = re.compile(r"\]\(\.\./notebooks/([\w-]+)\.ipynb\)")
_LINK_OUT_OF_DOCS = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn `[words](../src/…)` into `words`, on pages that lie in `docs` itself."""
    if "/" in page.file.src_uri:
        return markdown
    return _LINK_OUT_OF_DOCS.sub(r"\1", _NOTEBOOK.sub(r"](notebooks/\1.md)", markdown))
