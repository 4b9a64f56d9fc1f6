"""Elements of untrusted XML: no entities, limited depth, a limited number of elements."""

from collections.abc import Iterator
from xml.dom.minidom import Element
from xml.parsers.expat import ExpatError

from defusedxml.common import DefusedXmlException
from defusedxml.expatbuilder import DefusedExpatBuilder

from td3_robot.errors import ConfigError, not_none

_MAX_DEPTH = 100  # a robot description has about 6
_MAX_ELEMENTS = 100_000  # 100 for each of the most links that are taken


class _TooMuch(Exception):
    """The file is no robot description."""


class _Builder(DefusedExpatBuilder):
    """A parser that counts while it reads, to limit time and memory."""

    depth = elements = 0

    def start_element_handler(self, name, attributes):
        self.depth += 1
        self.elements += 1
        if self.depth > _MAX_DEPTH:
            raise _TooMuch(f"has elements more than {_MAX_DEPTH} deep in each other")
        if self.elements > _MAX_ELEMENTS:
            raise _TooMuch(
                f"has more than {_MAX_ELEMENTS:,} elements; a robot description is smaller"
            )
        super().start_element_handler(name, attributes)

    def end_element_handler(self, name):
        self.depth -= 1
        super().end_element_handler(name)


def parse_root(content: bytes, source: str) -> Element:
    """Parse the root element. Prefixes need no declaration: third-party files forget it.

    Args:
        source: the file, as messages name it.

    Raises:
        ConfigError: it is no XML, or has what a robot description has no need of.
    """

    def make_error(what):
        return ConfigError(f"{source}: {what}")

    try:
        return not_none(_Builder(forbid_dtd=True).parseString(content).documentElement)
    except ExpatError as reason:
        raise make_error(f"is not well-formed XML: {reason}") from None
    except DefusedXmlException:
        raise make_error(
            "has a DOCTYPE or entities, which a robot description has no need of"
        ) from None
    except _TooMuch as reason:
        raise make_error(str(reason)) from None
    except (
        LookupError,
        ValueError,
    ) as reason:  # encodings that Python does not know, or text not in them
        raise make_error(" ".join(f"cannot be decoded: {reason}".split())) from None


def iter_elements(parent: Element) -> Iterator[Element]:
    """Yield the elements directly inside another."""
    return (node for node in parent.childNodes if node.nodeType == node.ELEMENT_NODE)


def find_children(parent: Element, tag: str) -> list[Element]:
    """Find the elements of one name."""
    return [element for element in iter_elements(parent) if element.tagName == tag]


def find_child(parent: Element, tag: str) -> Element | None:
    """Find the first element of one name."""
    return next(iter(find_children(parent, tag)), None)
