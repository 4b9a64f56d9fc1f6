"""The words of the pages: the field's terms, as many as a page may have, spelt right, and figures
that come from files.
"""

import ast
import builtins
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from td3_robot.utils.console import SCRIPTS
from tests.docs_pages import DOCS, Page, read_page, reader_pages, site_pages
from tests.support import ROOT, load_command

PAGES = reader_pages()
README = 450  # words
CHANGELOG = 600
BUDGET = 1000  # words of a page whose front matter has no `budget`
IN_ALL = 25_000
GENERATED = {"gallery"}  # by docs/make_gallery.py
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
FIGURE = re.compile(r"\d(?:[\d.,]*\d)?\s?(?:%|(?:env steps/s|steps/s|updates/s|ms|mm|s)\b)")
PASSING = r"today|yesterday|formerly|previously|no longer|used to"  # a reference says what is


def page_name(page: Page) -> str:
    return page.name


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_page_uses_the_terms_of_the_field(page):
    assert not find_private(page.prose)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_page_keeps_its_budget_of_words(page):
    """`budget` in the front matter of a page that has another one than most."""
    assert page.words <= page.front.get("budget", README if page.name == "README.md" else BUDGET)


def test_all_pages_keep_theirs():
    assert read_page(ROOT / "CHANGELOG.md").words <= CHANGELOG
    assert sum(page.words for page in PAGES if page.path.stem not in GENERATED) <= IN_ALL


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


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.front.get("type") == "reference"], ids=page_name
)
def test_a_reference_says_what_is_and_not_what_has_been(page):
    assert not re.findall(rf"\b(?:{PASSING})\b", page.prose, re.IGNORECASE)


MESSAGES = ("Error", "warn", "warning", "note", "say", "print")  # calls whose words a user reads


def iter_sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of the first paragraphs of docstrings and of messages in a source file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            head = (ast.get_docstring(node) or "").split("\n\n")[0]
            yield getattr(node, "lineno", 1), " ".join(re.sub(r"`[^`]*`", "`", head).split())
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name.endswith(MESSAGES):
                texts = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant))
                yield node.lineno, " ".join(text for text in texts if isinstance(text, str))


def find_private(text: str) -> dict[str, str]:
    """Find this project's own words in a text, and what to write instead."""
    return {
        match[0]: better
        for words, better in PRIVATE.items()
        for match in re.finditer(rf"\b(?:{words})\b", text, re.IGNORECASE)
    }


def test_messages_and_the_heads_of_docstrings_use_the_terms_of_the_field():
    sources = [p for folder in ("td3_robot", "envs") for p in (ROOT / folder).rglob("*.py")]
    found = [
        (f"{path.relative_to(ROOT)}:{line}", words)
        for path in [*sources, *ROOT.glob("*.py")]
        for line, text in iter_sentences(path)
        if (words := find_private(text))
    ]
    assert not found


def list_raised(text: str) -> list[str]:
    """List the exceptions that the `Raises:` section of a docstring names."""
    section = re.search(r"^Raises:\n((?:(?: .*)?\n)*)", f"{text}\n", re.MULTILINE)
    heads = re.findall(r"^ {4}(\S[^:]*):", section[1], re.MULTILINE) if section else []
    return [name.split(".")[-1] for head in heads for name in head.split(", ")]


def test_what_a_docstring_says_is_raised_exists():
    """A class of ours, one of Python or of a module imported there, or an argument."""
    trees = {
        path.relative_to(ROOT): ast.parse(path.read_text())
        for folder in ("td3_robot", "envs")
        for path in (ROOT / folder).rglob("*.py")
    }
    ours = {n.name for t in trees.values() for n in ast.walk(t) if isinstance(n, ast.ClassDef)}
    count = 0
    unknown = []
    for path, tree in trees.items():
        used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}  # yaml.YAMLError
        known = ours | used | {*dir(builtins)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                raised = list_raised(ast.get_docstring(node) or "")
                count += len(raised)
                arguments = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
                missing = {*raised} - known - arguments
                unknown += [(f"{path}:{getattr(node, 'lineno', 1)}", name) for name in missing]
    assert count > 200 and not unknown


def test_private_words_in_a_message_and_in_a_docstring_are_found(tmp_path):
    source = tmp_path / "module.py"
    source.write_text('def f():\n    """Do it at once.\n\n    Anew.\n    """\n    raise E(x)\n'
                      'raise OwnError(f"go on with {x}")\n')  # fmt: skip
    assert [find_private(text) for _, text in iter_sentences(source)] == [
        {}, {"at once": "immediately; simultaneously"}, {"go on": "resumes, continues"}]  # fmt: skip


@pytest.mark.parametrize("command", SCRIPTS)
def test_the_help_uses_the_terms_of_the_field(command, capsys):
    """Headings, options, examples: all that `--help-all` prints."""
    with pytest.raises(SystemExit):
        load_command(SCRIPTS[command].removesuffix(".py")).main(["--help-all"])
    assert not find_private(" ".join(capsys.readouterr().out.split()))


LONGEST = 30  # words of a sentence


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_sentence_is_short(page):
    """Tables aside. A list of codes or a formula may be longer with semicolons."""
    text = re.sub(r"^\|.*$", "", page.prose, flags=re.MULTILINE)
    for part in re.split(r"\n\s*\n|\n(?=[-#:]|\d\.)|(?<=[.!?:;])\s+", text):
        assert len(re.findall(r"\w\S*", part)) <= LONGEST, part


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
