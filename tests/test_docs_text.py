"""The words of the pages: the field's terms, as many as a page may have, spelt right, and figures
that come from files.
"""

import re
import subprocess
import sys

import pytest

from tests.docs_pages import DOCS, Page, read_page, reader_pages, site_pages
from tests.support import ROOT

PAGES = reader_pages()
README = 450  # words
CHANGELOG = 600
BUDGET = 1000  # words of a page whose front matter has no `budget`
IN_ALL = 25_000
PRIVATE = {  # words that only this project's authors would read as they are meant: what to write
    r"guarded|behind (the|a|its) guard": "with the safety shield enabled",
    r"scripted (pick|push)": "scripted expert",
    r"resolved rates": "resolved-rate motion control (RRMC)",
    r"contact physics|in physics": "MuJoCo engine; with contact dynamics",
    r"without (forces|physics)": "kinematic engine",
    r"(is|are|was|were) told|told (once|of)|tells|says|said": "receives; reports, prints, states",
    r"(is|are) paid": "reward, penalty, weight",
    r"in place of": "instead of",
    r"beside": "compared with; next to; in addition to",
    r"anew": "again; resampled",
    r"at once": "immediately; simultaneously",
    r"to the bit": "bit-exact",
    r"goes on|go on": "resumes, continues",
    r"foresight|foresees?|foreseen": "latency compensation; predicts",
    r"bound for": "half-period-ahead joint position",
    r"taken for": "assumed; misestimated as",
    r"(prompt|late) arm": "arm without latency, with latency",
    r"led by hand": "interactive control",
    r"teachers?": "expert",
    r"out of step": "staggered",
    r"sittings?": "session",
    r"what act(s|ed)": "the deployed policy",
    r"held to": "validated against",
    r"unseen episodes": "held-out episodes",
    r"of (before|today)": "a version or a commit",
    r"learnt": "learned, trained",
    r"mend(ed|s)?": "fixed",
    r"heed(ed|s)?": "handled, taken into account",
    r"dear(er|est)?": "expensive",
    r"strangers?": "untrusted source",
    r"hostile": "malformed, malicious",
    r"seam": "interface",
    r"exchange[ds]?": "replaced",
    r"where (that|there) (is|are)": "if, when",
}
FIGURE = re.compile(r"\d(?:[\d.,]*\d)?\s?(?:%|env steps/s|steps/s|updates/s)")


def page_name(page: Page) -> str:
    return page.name


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_page_uses_the_terms_of_the_field(page):
    found = {
        match[0]: better
        for words, better in PRIVATE.items()
        for match in re.finditer(rf"\b(?:{words})\b", page.prose, re.IGNORECASE)
    }
    assert not found


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_page_keeps_its_budget_of_words(page):
    """`budget` in the front matter of a page that has another one than most."""
    assert page.words <= page.front.get("budget", README if page.name == "README.md" else BUDGET)


def test_all_pages_keep_theirs():
    assert read_page(ROOT / "CHANGELOG.md").words <= CHANGELOG
    assert sum(page.words for page in PAGES) <= IN_ALL


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if p.front.get("type") in ("tutorial", "how-to", "explanation")],
    ids=page_name,
)
def test_figures_come_from_files(page):
    """Write {{ figure(...) }}; a constant that is no measurement goes into `constants:` of the front
    matter, as it is written.
    """
    assert set(FIGURE.findall(page.prose)) <= set(map(str, page.front.get("constants", ())))


def test_a_picture_has_an_alternative_text():
    for page in PAGES:
        assert not re.findall(r"!\[\s*\]\(", page.text), page.name


def test_the_words_are_spelt_right():
    files = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(page.path for page in site_pages())]
    run = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *map(str, files)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout


def test_a_page_is_in_one_folder_of_its_type():
    kinds = {"tutorials": "tutorial", "how-to": "how-to", "explanation": "explanation",
             "reference": "reference"}  # fmt: skip
    for page in site_pages():
        folder = page.path.parent
        if folder != DOCS and page.path.stem != "index":
            top = page.path.relative_to(DOCS).parts[0]
            assert page.front["type"] == kinds[top], page.name


def test_a_benchmark_note_begins_with_its_conclusion_and_says_how_it_was_measured():
    """benchmarks/notes: one question a file, where and with what, three lines of conclusion."""
    notes = [p for p in (ROOT / "benchmarks/notes").glob("*.md") if p.stem != "README"]
    index = (ROOT / "benchmarks/notes/README.md").read_text()
    for path in notes:
        text = path.read_text()
        header = re.findall(r"^\| ([\w, -]+) \| .+ \|$", text.split("**Conclusion.**")[0], re.M)
        assert header[1:] == ["date", "commit", "preset, SHA-256", "machine", "load", "command",
                              "seeds", "CSV"], path.name  # fmt: skip
        conclusion = text.split("**Conclusion.**")[1].strip().splitlines()[:4]
        assert [line[:2] for line in conclusion[:3]] == ["1.", "2.", "3."], path.name
        assert f"({path.name})" in index, path.name
    assert sum(len(re.findall(r"\w[^\s|]*", path.read_text())) for path in notes) <= 12_000
