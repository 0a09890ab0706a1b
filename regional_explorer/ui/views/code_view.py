"""The code view: the generated code of a region, its kernels and source lines linked to the nodes of a graph view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regional_explorer.errors.texts import count
from regional_explorer.record.region_code import PartitionCode
from regional_explorer.render.viewer.code_tree import CodeRows, code_rows
from regional_explorer.ui.views.linked_view import LinkedView


class CodeView(LinkedView):
    """Widget that shows generated code; a click on a source line, a kernel or its code selects its nodes.

    With Ctrl a click adds the nodes to the selection, or removes them.
    """

    def __init__(self, **traits: Any) -> None:
        super().__init__(self._on_row_message, kind="rxs", **traits)
        self._rows = CodeRows([])
        self._keys_by_node: dict[str, list[str]] = {}
        self.observe(lambda _: self._highlight_rows(), ("selection", "hover"))
        self.set_code(())

    def set_code(self, partitions: Sequence[PartitionCode]) -> None:
        """Show the code of a region's partitions."""
        self._rows = code_rows(partitions)
        self._keys_by_node = {}
        for key, nodes in self._rows.nodes.items():
            for name in nodes:
                self._keys_by_node.setdefault(name, []).append(key)
        with self.hold_sync():
            self.tree = self._rows.tree
            self._highlight_rows()

    def _on_row_message(self, message: Mapping[str, Any]) -> None:
        nodes = self._rows.nodes.get(message["of"], ())
        match message["do"]:
            case "point":
                self._point_at(nodes)
            case "pick" if nodes:
                picked = self._picked(nodes, ctrl=bool(message.get("ctrl")))
                self._select_nodes(picked)
                self._highlight_rows(f"{count(len(picked), 'node')} selected")
            case "clear":
                self._select_nodes([])

    def _highlight_rows(self, announcement: str = "") -> None:
        """Send the page which rows to highlight; it scrolls to the rows of nodes that are hovered in another view."""
        rows: dict[str, dict[str, None]] = {}
        for highlight, nodes in (("selected chosen", self.selection), ("", self.hover)):
            for name in nodes:
                for key in self._keys_by_node.get(name, ()):
                    rows.setdefault(key, {})[highlight or ("hovered" if key.startswith("c") else "above")] = None
        self.lit = {"rows": {key: " ".join(highlights) for key, highlights in rows.items()}, "say": announcement}
