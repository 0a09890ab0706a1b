"""The ``graphviz.Digraph`` that shows itself without a ``dot`` executable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from regional_explorer.picture.compose import compose
from regional_explorer.picture.graphviz import layout_command, scene_dot
from regional_explorer.picture.svg import digraph
from tests.shared import sessions
from tests.shared.sessions import parse

graphviz = pytest.importorskip("graphviz")
ROOT = Path(__file__).resolve().parents[2]
needs_graphviz = pytest.mark.skipif(layout_command("svg") is None, reason="no Graphviz")


def test_it_is_a_digraph_that_says_the_same_as_the_dot_text() -> None:
    session = sessions.trained(2)
    made = digraph(session)
    assert isinstance(made, graphviz.Digraph)
    said = [line.strip() for line in made.source.splitlines()]
    assert said == [line.strip() for line in scene_dot(compose(session)).splitlines()]


def test_it_shows_itself_with_an_empty_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    bundle = digraph(sessions.trained(2))._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert "mlp[0] · 3 ops" in bundle["text/html"]


def test_include_and_exclude_are_kept() -> None:
    made = digraph(sessions.trained(1))
    assert set(made._repr_mimebundle_(include=["image/svg+xml"])) == {"image/svg+xml"}
    assert set(made._repr_mimebundle_(exclude=["text/html"])) == {"text/plain"}


@needs_graphviz
def test_what_the_user_adds_is_shown() -> None:
    made = digraph(sessions.trained(1))
    made.node("mine", label="added by hand")
    svg = made._repr_svg_()
    assert svg is not None
    assert svg.startswith("<svg")
    assert "added by hand" in "".join(parse(svg).itertext())


SHOWN = """
import sys
from regional_explorer.picture.svg import digraph
from tests.shared import sessions

digraph(sessions.trained(1))._repr_mimebundle_()
assert "pygraphviz" not in sys.modules
"""


def test_the_process_that_shows_it_never_loads_pygraphviz() -> None:
    # A process of its own: other tests of this one may have loaded it.
    done = subprocess.run([sys.executable, "-c", SHOWN], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
