"""The pages of the documentation, taken apart for the tests that read them."""

import functools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support import ROOT

DOCS = ROOT / "docs"
_FENCE = re.compile(
    r"(?:<!-- (?P<note>skip|file|add to): (?P<value>[^\n]*?) -->\n)?^(?P<ticks>```+)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=ticks)$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block, with what the comment before it says: `skip: WHY`, `file: NAME` for a file that
    the reader saves, `add to: NAME` for what the reader appends to it.
    """

    language: str
    text: str
    note: str | None = None
    value: str = ""

    @property
    def skip(self) -> str | None:
        return self.value if self.note == "skip" else None


@dataclass(frozen=True)
class Page:
    """A page: its path, its front matter, and its text without that."""

    path: Path
    front: dict
    text: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def blocks(self) -> list[Block]:
        return [
            Block((m["info"].split() or [""])[0], m["text"], m["note"], m["value"] or "")
            for m in _FENCE.finditer(self.text)
        ]

    @property
    def prose(self) -> str:
        """The text without blocks, comments, code in backticks and the targets of links."""
        text = _strip_blocks(self.text)
        return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]+`", "`", text))

    @property
    def words(self) -> int:
        """The hand-written words: all but blocks, comments and tables from files."""
        text = re.sub(r"\]\([^)]*\)", "]", _strip_blocks(self.text))
        return len(re.findall(r"\w[^\s|]*", text))


def _strip_blocks(text: str) -> str:
    """Return a page's text without tables from files, fences, comments and placeholders."""
    text = re.sub(r"<!-- table of .*?<!-- end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", _FENCE.sub("", text), flags=re.DOTALL)
    return re.sub(r"\{\{.*?\}\}", "", text)


def read_page(path: Path) -> Page:
    text = path.read_text()
    if not text.startswith("---\n"):
        return Page(path, {}, text)
    _, front, rest = text.split("---\n", 2)
    return Page(path, yaml.safe_load(front), rest)


@functools.cache
def site_pages() -> list[Page]:
    """The pages of the site, but for the generated ones."""
    paths = sorted(p for p in DOCS.rglob("*.md") if not {"_build", "api"} & {*p.parts})
    return [read_page(path) for path in paths]


def reader_pages() -> list[Page]:
    """README and the site."""
    return [read_page(ROOT / "README.md"), *site_pages()]


def iter_commands(block: Block) -> Iterator[list[str]]:
    """Yield the command lines of a block, without prompt, comment and leading VARIABLE=value."""
    lines = re.sub(r"\\\n", " ", block.text).splitlines()
    prompts = any(line.startswith("$ ") for line in lines)
    for line in lines:
        if prompts and not line.startswith("$ "):
            continue  # what the command prints
        for part in re.split(r"\s&&\s", line.removeprefix("$ ")):
            words = shlex.split(part, comments=True)
            while words and re.match(r"\w+=", words[0]):
                words.pop(0)
            if words:
                yield words


def read_files(page: Page) -> dict[str, str]:
    """Return the files that a tutorial has its reader write, piece by piece, by their names."""
    files: dict[str, str] = {}
    for block in page.blocks:
        if block.note in ("file", "add to"):
            before = files[block.value] if block.note == "add to" else ""
            files[block.value] = before + block.text
    return files
