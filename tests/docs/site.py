"""Build the site of docs/ strictly, and look at what was built."""

import os
import re
import subprocess
import sys
from pathlib import Path

# What a browser fetches by itself: scripts, styles, icons, images, frames. Links are for readers.
LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?([^\s\">]+)")
STYLED = re.compile(r"(?:url\(|@import\s+)[\"']?([^\s\"')]+)")
ELSEWHERE = re.compile(r"(?:[a-z]+:)?//")
RAW_TABLE = re.compile(r"^\|[ :|-]+\|$", re.MULTILINE)
RAW_FENCE = re.compile(r"^ *(?:<p>)?(?:```|~~~).*$", re.MULTILINE)


def build(folder: Path, site: Path) -> tuple[int, str]:
    """Build ``folder/mkdocs.yml`` into ``site``; return exit status and output.

    Without --quiet, under which --strict counts no warning.
    """
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(site)],
        cwd=folder,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def problems(site: Path) -> list[str]:
    """Return one line for each thing loaded from elsewhere, and for Markdown left as it was."""
    found = []
    for file in sorted(site.rglob("*")):
        name = file.relative_to(site).as_posix()
        if file.suffix == ".html":
            text = file.read_text(encoding="utf-8")
            found += [f"{name}: loads {url}" for url in LOADED.findall(text) if is_elsewhere(url)]
            found += [f"{name}: a diagram that loads a script"] * ('class="mermaid"' in text)
            found += [f"{name}: shown raw: {line}" for line in RAW_TABLE.findall(text)]
            found += [f"{name}: shown raw: {line}" for line in RAW_FENCE.findall(text)]
        elif file.suffix == ".css":
            text = file.read_text(encoding="utf-8")
            found += [f"{name}: loads {url}" for url in STYLED.findall(text) if is_elsewhere(url)]
    return found


def is_elsewhere(url: str) -> bool:
    """Whether a browser would leave the site for this address."""
    return ELSEWHERE.match(url) is not None
