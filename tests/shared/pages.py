"""Reading a page back: its elements, and their texts."""

from __future__ import annotations

import json
from collections import defaultdict
from html.parser import HTMLParser
from typing import Any

VOID = {"meta"}


class Page(HTMLParser):
    """All elements and attributes of a page, and the texts; elements are closed in order.

    ``texts`` has the text of each element, by its tag; ``words`` the text of all but style sheets.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.texts: defaultdict[str, list[str]] = defaultdict(list)
        self.words = ""
        self.feed(page)
        self.close()
        assert self.open == []

    @property
    def data(self) -> dict[str, Any]:
        """What the first script, which is JSON, says."""
        found: dict[str, Any] = json.loads(self.texts["script"][0])
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that begins."""
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)
            self.texts[tag].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        """Note that the element that began last ends."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Add a text to the elements around it."""
        self.words += "" if "style" in self.open else data
        for tag in set(self.open):
            self.texts[tag][-1] += data
