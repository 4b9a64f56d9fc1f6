"""Link each term of the glossary where a page uses it first, with its definition as a tooltip."""

import re
from functools import cached_property

from docutils import nodes
from sphinx.application import Sphinx

GLOSSARY = "reference/glossary"
SPEAKING = {"run"}  # terms that sentences also use as a word of every day
LEFT_OUT = (GLOSSARY, "reference/api", "changelog", "index")
NO_PROSE = (nodes.reference, nodes.literal, nodes.literal_block, nodes.title, nodes.math, nodes.raw)


class Glossary:
    """The terms of docs/reference/glossary.md with their definitions."""

    def __init__(self, text: str):
        entries = re.findall(r"^(\w.*)\n: (.+)$", text, re.MULTILINE)
        self.definitions = {
            name.strip(): re.sub(r"[`*]", "", definition)
            for names, definition in entries
            for name in names.split(",")
        }

    @cached_property
    def pattern(self) -> re.Pattern:
        """Finds a term, in the singular or the plural; a longer one goes first."""
        names = sorted(self.definitions.keys() - SPEAKING, key=len, reverse=True)
        return re.compile(rf"\b({'|'.join(map(re.escape, names))})s?\b", re.IGNORECASE)

    def find(self, word: str) -> str:
        """Return the term as the glossary writes it."""
        return next(name for name in self.definitions if name.lower() == word.lower())


def make_id(term: str) -> str:
    """Return the anchor of a term on the glossary's page."""
    return f"term-{nodes.make_id(term)}"


def read_glossary(app: Sphinx) -> Glossary:
    """Read the glossary's page."""
    return Glossary((app.srcdir / f"{GLOSSARY}.md").read_text(encoding="utf-8"))


def anchor_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Give the terms on the glossary's page their anchors."""
    if app.env.docname == GLOSSARY:
        for term in doctree.findall(nodes.term):
            term["ids"] += [make_id(name.strip()) for name in term.astext().split(",")]


def link_terms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link the first use of each term in the prose of a page."""
    if docname.startswith(LEFT_OUT) or docname.endswith("/index"):
        return
    glossary = read_glossary(app)
    page = app.builder.get_relative_uri(docname, GLOSSARY)
    used: set[str] = set()
    for text in list(doctree.findall(nodes.Text)):
        if not _is_prose(text):
            continue
        pieces = _split_text(text.astext(), glossary, page, used)
        if len(pieces) > 1:
            text.parent.replace(text, pieces)


def _is_prose(text: nodes.Text) -> bool:
    node: nodes.Node | None = text.parent
    while node is not None:
        if isinstance(node, NO_PROSE):
            return False
        node = node.parent
    return True


def _split_text(text: str, glossary: Glossary, page: str, used: set[str]) -> list[nodes.Node]:
    pieces: list[nodes.Node] = []
    end = 0
    for match in glossary.pattern.finditer(text):
        term = glossary.find(match[1])
        if term in used:
            continue
        used.add(term)
        pieces.append(nodes.Text(text[end : match.start()]))
        link = nodes.reference("", match[0], internal=True, refuri=f"{page}#{make_id(term)}")
        link["reftitle"] = glossary.definitions[term]
        link["classes"].append("glossary-term")
        pieces.append(link)
        end = match.end()
    return [*pieces, nodes.Text(text[end:])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect both."""
    app.connect("doctree-read", anchor_terms)
    app.connect("doctree-resolved", link_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
