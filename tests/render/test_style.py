"""Numbers, colours, cleaned text and elements, which all texts and pages share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

from regional_explorer.errors import count, listing
from regional_explorer.style.css import DARK, LIGHT, Ground, paint
from regional_explorer.style.element import clean, clean_page, markup, node, style_sheet, to_html, words
from regional_explorer.style.formats import duration, percent, signed, significant, size
from tests.shared.pages import contrast, linear_rgb

WRITTEN: dict[Callable[[Any], str], dict[float | None, str]] = {
    duration: {
        None: "–",
        0.0: "0 µs",
        3.97e-4: "397 µs",
        1.234e-5: "12.3 µs",
        9.9996e-4: "1.00 ms",
        0.0425: "42.5 ms",
        0.99999: "1.00 s",
        1.5: "1.50 s",
        754.2: "754 s",
        4.2e-9: "0.00420 µs",
    },
    signed: {2e-6: "+2.00 µs", -2e-6: "−2.00 µs", None: "–"},
    significant: {
        0.0: "0",
        float("inf"): "inf",
        float("nan"): "nan",
        1234.5: "1,230",
        12.345: "12.3",
        9.96: "9.96",
        99.96: "100",
        99.6: "99.6",
        0.01234: "0.0123",
        2.1e-7: "2.10e-07",
        1.5e9: "1.50e+09",
    },
    percent: {
        0.0: "0 %",
        1.0: "100 %",
        0.1234: "12.3 %",
        0.0004: "< 0.1 %",
        -0.05: "-5.00 %",
        -0.0004: "> -0.1 %",
    },
    size: {
        0: "0 B",
        1023: "1023 B",
        1 << 10: "1.00 KiB",
        3 << 20: "3.00 MiB",
        1000 << 10: "1,000 KiB",
        (1 << 20) - 1: "1.00 MiB",
        (1 << 30) - 1: "1.00 GiB",
        3 << 30: "3.00 GiB",
    },
}


@pytest.mark.parametrize("write", WRITTEN)
def test_numbers_are_formatted_for_reading(write: Callable[[Any], str]) -> None:
    assert {value: write(value) for value in WRITTEN[write]} == WRITTEN[write]


def test_counts_and_listings() -> None:
    assert [count(1, "op"), count(2, "op"), count(12_000, "op")] == ["1 op", "2 ops", "12,000 ops"]
    assert [listing("ab"), listing("abcd", 3), listing("ab", 1, joint=" → ")] == [
        "a, b",
        "a, b, c, … (1 more)",
        "a → … (1 more)",
    ]


def test_clean_keeps_one_visible_line() -> None:
    assert clean("a\n b\tc\x00\u202ed") == "a b cd"
    assert clean("日本 é") == "日本 é"
    assert clean("x" * 50, 10) == "x" * 9 + "…"
    assert clean_page("a\x1b[0m \nb") == "a[0m\nb"
    assert markup('<a href="x">&\'') == "&lt;a href=&quot;x&quot;&gt;&amp;&#x27;"


@pytest.mark.parametrize(
    ("tag", "attributes"),
    [
        ("script", {}),
        ("img", {}),
        ("iframe", {}),
        ("a", {}),
        ("div", {"onclick": "alert(1)"}),
        ("b", {"src": "x"}),
        ("b", {"href": "x"}),
    ],
)
def test_unknown_elements_are_refused(tag: str, attributes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not among the elements"):
        node(tag, **attributes)


def test_empty_nodes_give_no_markup() -> None:
    assert node("p", "", None, "a", title=None, hidden=False) == ["p", {}, "a"]
    assert to_html(node("input", type="checkbox", checked=True, class_="x", data_of="a&b")) == (
        '<input type="checkbox" checked class="x" data-of="a&amp;b"/>'
    )


def test_spaces_between_texts_and_elements_stay() -> None:
    part = node("p", "one ", node("b", "two"), "  three")
    assert to_html(part) == "<p>one <b>two</b> three</p>"
    assert words(part) == "one  two  three"


def test_a_style_sheet_is_not_escaped() -> None:
    assert to_html(style_sheet("a>b{content:'<'}")) == "<style>a>b{content:'<'}</style>"


def test_regions_differ_in_letter_and_hue() -> None:
    paints = [paint(index) for index in range(60)]
    assert len({one.letter for one in paints}) == 60
    assert len({one.hue for one in paints[:8]}) == 8
    assert len({(one.hue, one.line) for one in paints[:24]}) == 24


@pytest.mark.parametrize("index", range(8))
def test_region_texts_are_readable_on_their_ground(index: int) -> None:
    found = paint(index)
    for tone, ground in ((found.light, LIGHT), (found.dark, DARK)):
        assert contrast(tone.text, tone.fill) >= 4.5
        assert contrast(tone.text, ground.paper) >= 4.5


@pytest.mark.parametrize("ground", [LIGHT, DARK])
def test_texts_are_readable_on_each_ground(ground: Ground) -> None:
    for ink in (ground.ink, ground.quiet, ground.bad):
        assert contrast(ink, ground.paper) >= 4.5
        assert contrast(ink, ground.box) >= 4.5


@pytest.mark.parametrize("ground", ["light", "dark"])
@pytest.mark.parametrize("sight", ["normal", "protanopia", "deuteranopia"])
def test_regions_differ_for_colour_blind_readers(sight: str, ground: str) -> None:
    colours = [perceived_colour(getattr(paint(index), ground).stroke, sight) for index in range(8)]
    assert min(itertools.starmap(math.dist, itertools.combinations(colours, 2))) > 0.12


def perceived_colour(colour: str, sight: str) -> list[float]:
    """Return the colour as seen without red or green cones, as cube roots of linear RGB."""
    matrix = {
        "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
        "protanopia": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
        "deuteranopia": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    }[sight]
    light = linear_rgb(colour)
    return [max(sum(m * p for m, p in zip(row, light, strict=True)), 0) ** (1 / 3) for row in matrix]
