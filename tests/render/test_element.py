"""Elements: texts are texts, and only listed tags and attributes are made."""

from __future__ import annotations

import pytest

from regional_explorer.style.element import node, style_sheet, to_html, words


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
def test_what_is_not_listed_is_refused(tag: str, attributes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="not among the elements"):
        node(tag, **attributes)


def test_nothing_stands_for_nothing() -> None:
    assert node("p", "", None, "a", title=None, hidden=False) == ["p", {}, "a"]
    assert to_html(node("input", type="checkbox", checked=True, class_="x", data_of="a&b")) == (
        '<input type="checkbox" checked class="x" data-of="a&amp;b"/>'
    )


def test_spaces_between_texts_and_elements_stay() -> None:
    part = node("p", "one ", node("b", "two"), "  three")
    assert to_html(part) == "<p>one <b>two</b> three</p>"
    assert words(part) == "one  two  three"


def test_a_style_sheet_is_no_markup() -> None:
    assert to_html(style_sheet("a>b{content:'<'}")) == "<style>a>b{content:'<'}</style>"
