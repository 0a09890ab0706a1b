"""Reading a page back: its elements, their texts, and the contrast of its colours."""

from __future__ import annotations

import base64
import json
import zlib
from collections import defaultdict
from html.parser import HTMLParser
from typing import Any

VOID = {"meta"}


class Page(HTMLParser):
    """All elements and attributes of a page, and the texts; asserts that elements are closed in order.

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
        """The state of the view, which the page unpacks from its first script."""
        found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(self.texts["script"][0])))
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)
            self.texts[tag].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += "" if "style" in self.open else data
        for tag in set(self.open):
            self.texts[tag][-1] += data


def linear_rgb(colour: str) -> list[float]:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of the web accessibility guidelines."""
    lights = sorted(
        sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear_rgb(c), strict=True)) for c in (one, other)
    )
    return (lights[1] + 0.05) / (lights[0] + 0.05)
