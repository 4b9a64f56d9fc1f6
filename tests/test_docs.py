"""The pages: the site builds without a warning, each link leads somewhere, each file and each make
target that a page names is there.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import ROOT

DOCS = ROOT / "docs"
SITE = sorted(p for p in DOCS.rglob("*.md") if not {"_build", "api"} & {*p.parts})
NOTES = sorted(ROOT.glob("benchmarks/notes/*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *SITE, *NOTES]
TYPES = {"index", "tutorial", "how-to", "reference", "explanation", "results", "moved"}
TEXTS = [
    path
    for folder in ("configs", "envs", "td3_robot", "benchmarks")
    for path in (ROOT / folder).rglob("*.*")
]
TEXTS = [path for path in TEXTS if path.suffix in (".py", ".yaml", ".md")] + [
    *ROOT.glob("*.py"),
    *PAGES,
]
NAMED = re.compile(
    r"(?<![\w./-])(?:benchmarks|configs|docs|envs|img|td3_robot|tests)/[a-z0-9_/-]+(?:\.[a-z]+)?(?![\w<*{/-])"
)


def anchors(page: Path) -> set[str]:
    """What GitHub and MyST make of headings: lower case, without punctuation, dashes for spaces."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def test_the_site_builds_without_a_warning(tmp_path):
    """Dead links and anchors, pages in no contents list, unresolved references: all are warnings.
    `make docs` adds the API and the notebook.
    """
    words = ("--quiet", "--fail-on-warning", "--keep-going", "--tag", "quick")
    run = subprocess.run(
        [sys.executable, "-m", "sphinx", *words, DOCS, tmp_path], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


def test_a_page_of_the_site_has_a_type():
    for page in SITE:
        text = page.read_text()
        if text.startswith("---\n"):  # the pages that wait for their place have none
            assert yaml.safe_load(text.split("---\n")[1])["type"] in TYPES, page_name(page)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
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
    built = {(name, page) for name, page in named if name.startswith("docs/_build")}  # by make docs
    assert not {(name, page) for name, page in named - built if not (ROOT / name).exists()}


def test_commands_name_what_make_can_do():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"`make ([\w-]+)", page.read_text())) <= targets, page
