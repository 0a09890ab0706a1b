"""Makes a ``graphviz.Digraph`` that Jupyter can display without a ``dot`` executable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from regional_explorer.record.session import Session
from regional_explorer.render.picture.compose import compose
from regional_explorer.render.picture.dot import dot_lines
from regional_explorer.render.picture.graphviz_process import graphviz as lay_out
from regional_explorer.render.picture.placement import place
from regional_explorer.render.picture.scene import Scene
from regional_explorer.render.picture.svg import draw, picture_html

if TYPE_CHECKING:
    import graphviz


def digraph(session: Session, graph_id: str | None = None) -> graphviz.Digraph:
    """Return one graph of ``session``, or all that run, side by side, as a ``graphviz.Digraph``.

    Jupyter displays it with the layout of pygraphviz, or with our own if that is missing or too slow; ``render`` and
    ``pipe`` are graphviz's own and need its ``dot`` executable.
    """
    return _scene_digraph(compose(session, graph_id))


def _scene_digraph(scene: Scene) -> graphviz.Digraph:
    import graphviz

    class RegionDigraph(graphviz.Digraph):  # type: ignore[misc] # graphviz is not annotated
        """A graphviz.Digraph drawn as ``scene`` as long as its DOT text is unchanged, else by the text."""

        def _repr_svg_(self) -> str | None:
            if self.source == original_source:
                return draw(scene, place(scene))
            svg = lay_out(self.source, "svg")
            # The prolog has a document type declaration, which is not allowed inside a page.
            return None if svg is None else svg.decode()[svg.decode().index("<svg") :]

        def _repr_mimebundle_(
            self,
            include: Iterable[str] | None = None,
            exclude: Iterable[str] | None = None,
            **_: Any,
        ) -> dict[str, str]:
            picture = self._repr_svg_()
            bundle = {"text/plain": self.source}
            if picture is not None:
                bundle |= {"text/html": picture_html(picture), "image/svg+xml": picture}
            # A notebook shows bare SVG without tooltips and theme: HTML replaces it, as both would be twice the size.
            mime_types = set(include) if include else set(bundle) - {"image/svg+xml"}
            return {mime: text for mime, text in bundle.items() if mime in mime_types - set(exclude or ())}

    region_digraph = RegionDigraph("regional_explorer", body=[f"\t{line}\n" for line in dot_lines(scene)])
    original_source = region_digraph.source
    return region_digraph
