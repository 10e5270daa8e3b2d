"""The site of docs is built without a complaint, has nothing from elsewhere, and leads only to what is there."""

import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser

import checkout
import commands
import pytest
import yaml
from zonetrack.clients import commands_page
from zonetrack.service.config import load

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
"""What a browser fetches when it shows a page, and where it stands."""


class Page(HTMLParser):
    """What a page leads to, and what it fetches."""

    def __init__(self, text):
        super().__init__()
        self.links, self.fetched, self.names = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADED and found.get(LOADED[tag]):
            self.fetched.append(found[LOADED[tag]])
        self.names |= {found[key] for key in ("id", "name") if found.get(key)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    if not (checkout.ROOT / "mkdocs.yml").exists():
        pytest.skip("the site is built where its sources are")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)]
    done = subprocess.run(command, cwd=checkout.ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text()) for path in site.rglob("*.html")}


def test_every_page_of_docs_is_on_it(site):
    for path in (checkout.ROOT / "docs").rglob("*.md"):
        assert (site / path.relative_to(checkout.ROOT / "docs").with_suffix(".html")).exists(), path
    assert (
        "Connection tracking in userspace" in (site / "index.html").read_text()
        and (site / "decisions" / "index.html").exists()
    )


def test_nothing_is_fetched_from_elsewhere(pages):
    for path, page in pages.items():
        assert not [one for one in page.fetched if "//" in one], path
    for path in next(iter(pages)).parent.rglob("*.css"):
        assert "url(http" not in path.read_text() and "url(//" not in path.read_text(), path


def test_every_link_leads_somewhere(site, pages):
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links begin at the root of a server
        for link in page.links:
            where, _, name = link.partition("#")
            if "//" in link or link.startswith("mailto:"):
                continue
            to = (path.parent / where).resolve() if where else path
            assert to.exists(), (path, link)
            if name and to.suffix == ".html":
                assert name in pages[to].names, (path, link)


def test_commands_are_current():
    assert checkout.page("commands.md") == commands_page.page(), "run `make docs`"


def blocks(kind):
    """Return the code blocks of a kind, with the page that has each."""
    return [
        (name, text) for name, page in commands.pages().items() for found, text in BLOCK.findall(page) if found == kind
    ]


@pytest.mark.parametrize(("page", "text"), blocks("toml"))
def test_a_configuration_that_is_shown_is_one(tmp_path, page, text):
    assert tomllib.loads(text)
    path = tmp_path / "zonetrack.toml"
    path.write_text(text)
    assert load({}, {}, path).sources, page


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_yaml_that_is_shown_is_yaml(page, text):
    assert yaml.safe_load(text), page


@pytest.mark.parametrize(("page", "text"), blocks("sh"))
def test_a_shell_takes_what_is_shown_to_it(page, text):
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), page
