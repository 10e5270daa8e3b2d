"""What git tracks can be given to anybody: no path of one machine, no capture, no name of a capture."""

import csv
import re

import checkout
import pytest

CORPUS = checkout.ROOT.parent / "shared" / "corpus"
MACHINE_PATHS = re.compile(rb"/(?:work|root|home/\w+|Users/\w+)/")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")
CAPTURE_MAGIC = (
    b"\xa1\xb2\xc3\xd4",
    b"\xd4\xc3\xb2\xa1",
    b"\xa1\xb2\x3c\x4d",
    b"\x4d\x3c\xb2\xa1",
    b"\x0a\x0d\x0d\x0a",
)


@pytest.fixture(scope="module")
def contents():
    """What every tracked file holds."""
    return {path: (checkout.ROOT / path).read_bytes() for path in checkout.tracked()}


def test_no_file_names_a_path_of_a_machine(contents):
    found = {str(path): MACHINE_PATHS.search(text) for path, text in contents.items()}
    assert {path: match[0] for path, match in found.items() if match} == {}


def test_every_link_of_a_page_leads_somewhere(contents):
    pages = [path for path in contents if path.suffix == ".md"]
    links = [(page, link) for page in pages for link in LINK.findall(contents[page].decode())]
    assert links
    missing = [(str(page), link) for page, link in links if not (checkout.ROOT / page.parent / link).exists()]
    assert missing == []


def test_no_capture_is_tracked(contents):
    assert [str(path) for path, text in contents.items() if text.startswith(CAPTURE_MAGIC)] == []


def test_no_file_names_a_capture_of_the_corpus(contents):
    """The tracker must be right about any capture, not about those that somebody looked at."""
    manifest = CORPUS / "MANIFEST.tsv"
    if not manifest.exists():
        pytest.skip("../shared/corpus is not here")
    with manifest.open(newline="") as lines:
        names = [row["name"].encode() for row in csv.DictReader(lines, delimiter="\t")]
    assert names
    assert [(str(path), name) for path, text in contents.items() for name in names if name in text] == []
