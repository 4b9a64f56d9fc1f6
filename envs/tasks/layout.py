"""Names for the columns of what the policy sees."""

from collections.abc import Iterable


class Layout:
    """Names for the columns of an observation, in order.

    >>> Layout([("q", 7), ("goal", 3)])["goal"]
    slice(7, 10, None)
    """

    def __init__(self, parts: Iterable[tuple[str, int]]):
        self._slices, start = {}, 0
        for name, size in parts:
            self._slices[name] = slice(start, start + size)
            start += size
        self.size = start

    def __getitem__(self, name: str) -> slice:
        return self._slices[name]

    def __iter__(self):
        return iter(self._slices)
