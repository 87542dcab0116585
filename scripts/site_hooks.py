"""What the site needs beyond the pages as they stand in docs/ (mkdocs.yml names this file)."""

import re
from typing import Any

# The words after a block's language are for tests/docs; MkDocs takes none but a title.
FENCE = re.compile(r"^(?P<head> *`{3,}[a-z0-9]+)(?P<words>(?: [\w=.-]+)+)$", re.MULTILINE)
FILE = re.compile(r" file=([\w.-]+)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with the words after a language left out, a file's name made its title."""
    return FENCE.sub(_plain, markdown)


def _plain(fence: re.Match[str]) -> str:
    file = FILE.search(fence["words"])
    return fence["head"] + (f' title="{file[1]}"' if file else "")
