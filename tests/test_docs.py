"""The pages: each link leads somewhere, each file they name is there, and the page of public names
is of today.
"""

import re
from pathlib import Path

import pytest

from tests.support import ROOT, load_script

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
TEXTS = [
    path
    for folder in ("configs", "envs", "td3_robot", "docs", "benchmarks")
    for path in (ROOT / folder).rglob("*.*")
]
TEXTS = [path for path in TEXTS if path.suffix in (".py", ".yaml", ".md")] + [
    *ROOT.glob("*.py"),
    *ROOT.glob("*.md"),
]
NAMED = re.compile(
    r"(?<![\w./-])(?:benchmarks|configs|docs|envs|img|td3_robot|tests)/[a-z0-9_/]+(?:\.[a-z]+)?(?![\w<*{/-])"
)


def anchors(page: Path) -> set[str]:
    """What GitHub makes of headings: lower case, without punctuation, a dash for each space."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        if "://" not in link:
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), link
            assert not anchor or anchor in anchors(there), link


def test_files_that_are_named_are_there():
    named = {(name, path.name) for path in TEXTS for name in NAMED.findall(path.read_text())}
    assert len(named) > 100
    assert not {(name, page) for name, page in named if not (ROOT / name).exists()}


def test_every_page_is_found_from_the_first():
    linked = set(re.findall(r"\]\((\w+\.md)", (ROOT / "docs/index.md").read_text()))
    assert {page.name for page in ROOT.glob("docs/*.md")} - {"index.md"} <= linked


def test_the_page_of_public_names_is_of_today():
    page = load_script("docs/make_api.py").page()
    assert (ROOT / "docs/api.md").read_text() == page, "run `make api`"


def test_commands_name_what_make_can_do():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"`make ([\w-]+)", page.read_text())) <= targets, page
