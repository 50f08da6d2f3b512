"""Hooks of the documentation site: the pages that stand at the top of the repository become pages of the site."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
#: The file at the top of the repository, and its name on the site.
PAGES = {
    "README.md": "index.md",
    "DESIGN.md": "design.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
#: The packages as they are installed, for the reference.
PACKAGES = ("network", "registry", "producer", "broker", "cli")
_SOURCES = ROOT / "build" / "site-sources"
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_startup(**_: object) -> None:
    """Lay the packages out as `headrace.*`, which is how the reference names them."""
    folder = _SOURCES / "headrace"
    folder.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        with contextlib.suppress(FileExistsError):  # an earlier build made it, or one that runs beside this one
            (folder / name).symlink_to(ROOT / name, target_is_directory=True)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    for source, name in PAGES.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_with_links_of_the_site(content)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Let links to files of the repository lead to the pages of the site; others become text."""
    return _with_links_of_the_site(markdown)


def _with_links_of_the_site(markdown: str) -> str:
    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        path = target.removeprefix("../")
        if path in PAGES:
            return f"[{text}]({PAGES[path]}{anchor})"
        page = path.removeprefix("docs/")
        if (ROOT / "docs" / page).exists() or page in PAGES.values():
            return f"[{text}]({page}{anchor})"
        return text  # a file of the sources, which the site doesn't have

    return _LINK.sub(link, markdown)
