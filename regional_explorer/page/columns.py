"""The columns of a panel or page: graph, source, and a pane beside them; each can be hidden, widened, full screen."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from regional_explorer.style.element import Node, node

GRAPH, SOURCE, BESIDE = COLUMNS = ("graph", "source", "beside")


def columns(
    head: Node | str, beside: Sequence[Node], shown: Collection[str] = COLUMNS, under: Sequence[Node] = ()
) -> Node:
    """Return the columns, each of which the page can hide and show.

    ``head`` is above what is ``beside`` the others, ``under`` is what is below the graph.
    """
    source = node("div", class_="rxs", data_part="source")
    contents = {
        GRAPH: [graph_host(), *under],
        SOURCE: [_head(node("span", "Source")), node("div", source, class_="rx-pane")],
        BESIDE: [_head(head), node("div", *beside, class_="rx-pane")],
    }
    grips = {
        SOURCE: _grip("Width of the graph and the source"),
        BESIDE: _grip("Width of the source and what is beside it"),
    }
    return node(
        "div",
        *(
            element
            for name, children in contents.items()
            for element in (
                grips.get(name),
                node("div", *children, class_="rx-column", data_column=name, hidden=name not in shown),
            )
            if element is not None
        ),
        class_="rx-views",
    )


def graph_host() -> Node:
    """Return the element that the page fills with the graph."""
    return node("div", class_="rxg", role="group", aria_label="Graph view")


def _head(title: Node | str) -> Node:
    full = node("button", "⤢", type="button", data_do="full", title="Full screen, and back", aria_label="Full screen")
    return node("div", title, full, class_="rx-head")


def _grip(label: str) -> Node:
    about = "Drag it, or press ← and →"
    return node(
        "div",
        role="separator",
        aria_orientation="vertical",
        aria_valuenow="50",
        aria_label=label,
        title=about,
        tabindex="0",
        class_="rx-grip",
    )
