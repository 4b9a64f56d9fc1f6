"""The pages: the site builds without a warning, each link leads somewhere, each file and each make
target that a page names is there.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from envs.controllers import BASELINES
from envs.tasks.registry import list_tasks
from td3_robot.config.help_text import format_value
from td3_robot.config.schema import make_schema
from tests.docs_pages import read_page
from tests.support import ROOT
from tests.test_docs_code import FLAGS

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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site, without the API pages and the notebook, and what Sphinx complained of."""
    out = tmp_path_factory.mktemp("site")
    words = ("--quiet", "--fail-on-warning", "--keep-going", "--tag", "quick")
    run = subprocess.run(
        [sys.executable, "-m", "sphinx", *words, DOCS, out], capture_output=True, text=True
    )
    return out, run


def read_html(site, name: str) -> BeautifulSoup:
    """Return a built page without its navigation."""
    page = BeautifulSoup((site[0] / name).read_text(), "html.parser")
    return page.find("article")


def test_the_site_builds_without_a_warning(site):
    """Dead links and anchors, pages in no contents list, unresolved references: all are warnings.
    `make docs` adds the API and the notebook.
    """
    run = site[1]
    assert run.returncode == 0, run.stderr


def test_every_option_is_in_the_reference(site):
    """With the words that --help has for it, and its default."""
    cells = read_html(site, "reference/command-line.html").find_all("tr")
    rows = {tuple(cell.get_text() for cell in row.find_all("td")) for row in cells}
    shown = {(row[0].removesuffix(" (fixed)"), row[1]) for row in rows if row}
    options = {
        (f"--{option.name}", format_value(option.default) if option.default else None)
        for classes in FLAGS.values()
        for group in make_schema("", "", *classes).groups
        for option in group.options
    }
    assert len(options) > 150
    names = {name for name, _ in shown}
    for name, default in options:
        assert (name, default) in shown if default else name in names, name


def test_a_term_is_linked_where_a_page_uses_it_first(site):
    """Once a page, with its definition, to an anchor that the glossary has; a heading, code and
    other links are left alone.
    """
    anchors = {tag["id"] for tag in read_html(site, "reference/glossary.html").find_all(id=True)}
    count = 0
    for page in SITE:
        name = page.relative_to(DOCS).with_suffix(".html")
        links = read_html(site, str(name)).select("a.glossary-term")
        targets = [link["href"].partition("#")[2] for link in links]
        assert len(targets) == len({*targets}) and {*targets} <= anchors, page_name(page)
        assert all(len(link["title"]) > 10 for link in links), page_name(page)
        count += len(links)
    assert count > 200
    guard = read_html(site, "explanation/guard-and-safety-filter.html")
    first = next(tag for tag in guard.find_all(["p", "td"]) if "guard" in tag.get_text().lower())
    assert first.select("a.glossary-term[href$='#term-guard']")


def test_everything_that_can_be_named_has_an_entry():
    """Each robot, gripper, task, controller and extra is on the page that lists its kind."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    kinds = {
        "reference/robots-and-grippers.md": [
            path.stem for kind in ("robots", "grippers") for path in (ROOT / "configs" / kind).iterdir()
        ],
        "reference/tasks/index.md": list_tasks(),
        "reference/classical-controllers.md": [*BASELINES, "random"],
        "how-to/compare-with-classical.md": [*BASELINES, "random"],
        "install.md": extras["optional-dependencies"],
    }  # fmt: skip
    for name, entries in kinds.items():
        text = (DOCS / name).read_text()
        missing = [entry for entry in entries if not re.search(rf"[`\[# ]{entry}[`\],\n]", text)]
        assert len(list(entries)) > 3 and not missing, name


def test_a_page_of_the_site_has_a_type():
    for page in SITE:
        assert read_page(page).front.get("type") in TYPES, page_name(page)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        if "://" not in link:
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), link
            assert not anchor or anchor in anchors(there), link


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_that_leave_the_site_are_well_formed(page):
    """`make links` asks their servers."""
    for link in re.findall(r"\]\((\w+://[^)\s]*)", page.read_text()):
        assert re.fullmatch(r"https://([\w-]+\.)+[a-z]{2,}(/[\w.~%#?=&+:@/-]*)?", link), link


def test_files_that_are_named_are_there():
    named = {(name, path.name) for path in TEXTS for name in NAMED.findall(path.read_text())}
    assert len(named) > 100
    built = {(name, page) for name, page in named if name.startswith("docs/_build")}  # by make docs
    assert not {(name, page) for name, page in named - built if not (ROOT / name).exists()}


def test_commands_name_what_make_can_do():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        assert set(re.findall(r"`make ([\w-]+)", page.read_text())) <= targets, page
