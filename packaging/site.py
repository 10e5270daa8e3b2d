"""Hooks of mkdocs: README is the first page, decisions have a list, and rooms that pages name are there to be read.

What stands outside of docs has no page: of a file that is linked the site gets a copy, as text, and of a directory a list.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "docs/decisions": "decisions/index.md"}
"""What has another place on the site."""
COPIES = "source"


def text_of(path):
    """Return a file as it is, or the names in a directory."""
    found = ROOT / path
    return "\n".join(sorted(one.name for one in found.iterdir())) if found.is_dir() else found.read_text()


def decisions():
    """Return the list of decisions, as markdown."""
    lines = ["# Decisions", "", "What was decided against the obvious, and why.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        lines.append(f"- [{path.read_text().splitlines()[0].lstrip('# ')}]({path.name})")
    return "\n".join(lines) + "\n"


def place_of(target):
    """Return where on the site something of the checkout is."""
    if target in PAGES:
        return PAGES[target]
    return target.removeprefix("docs/") if target.startswith("docs/") else f"{COPIES}/{target}.txt"


def linked(markdown, source):
    """Yield what a page links to that is in the checkout: the match, and its path there."""
    for match in LINK.finditer(markdown):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        if (ROOT / target).exists():
            yield match, target


def on_files(files, config):
    """Add pages and copies that are not in docs."""
    made = {
        "index.md": text_of("README.md"),
        "changelog.md": text_of("CHANGELOG.md"),
        "decisions/index.md": decisions(),
    }
    sources = {"README.md": made["index.md"], "CHANGELOG.md": made["changelog.md"]}
    sources |= {f"docs/{one.src_uri}": one.content_string for one in files.documentation_pages()}
    for source, markdown in sources.items():
        for _, target in linked(markdown, source):
            if target not in PAGES and not target.startswith("docs/"):
                made[place_of(target)] = text_of(target)
    for where, content in made.items():
        files.append(File.generated(config, where, content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    """Have links lead to where things are on the site."""
    here = page.file.src_uri
    source = {place: path for path, place in PAGES.items() if path.endswith(".md")}.get(here, f"docs/{here}")
    parts, last = [], 0
    for match, target in linked(markdown, source):
        to = posixpath.relpath(place_of(target), posixpath.dirname(here) or ".")
        parts += [markdown[last : match.start()], f"]({to}{match[2] or ''})"]
        last = match.end()
    return "".join([*parts, markdown[last:]])
