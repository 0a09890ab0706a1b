"""The saved page: one file that asks nothing of anyone, small, and safe whatever the user's program is called."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from regional_explorer.export.save import save
from regional_explorer.page.saved import page_html
from regional_explorer.record.artifact import ArtifactCode
from regional_explorer.record.session import Session
from regional_explorer.tables.plan import measured_plans
from tests.shared import sessions
from tests.shared.pages import Page


def test_the_page_names_no_other_place_and_runs_nothing_but_its_script() -> None:
    page = page_html(sessions.measured(sessions.troubled()))
    assert page.startswith("<!DOCTYPE html>")
    assert not re.search(r"url\(|@import|http(?!-equiv|://www\.w3\.org/2000/svg)", page)
    parsed = Page(page)
    assert not {"href", "src", "action"} & parsed.attributes
    _, code = parsed.texts["script"]
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert policy[1].split(";") == [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


@pytest.mark.parametrize("add", [sessions.measured, sessions.profiled])
def test_a_page_of_layers_stays_small(add: Callable[[Session], Session]) -> None:
    page = page_html(add(sessions.trained(24)))
    assert len(page.encode()) < 150_000


def test_the_page_holds_the_times_of_single_regions() -> None:
    base = sessions.measured()
    assert "Regions alone" not in page_html(base)
    alone = tuple(sessions.alone(part.id, 3e-4, 1e-4) for part in base.partitions)
    page = page_html(replace(base, partition_timings=alone))
    assert page.count("<h4>Regions alone</h4>") == 1
    assert re.search("1.20 ms.*400 µs.*3.00×", re.sub("<[^>]*>", " ", page.split("<h4>Regions alone</h4>")[1]))


def test_every_box_of_a_profiled_page_has_its_share_of_the_time() -> None:
    view = Page(page_html(sessions.profiled(sessions.trained()))).data
    assert [overlay["title"] for overlay in view["overlays"]] == ["share of the time"]
    for number in range(len(view["graphs"])):
        times = view[f"folds{number}"]["times"]
        shown_times = [*times["folds"], *times["nodes"]]
        assert all(tooltip.startswith(f"{label} of the call") for _, label, tooltip in shown_times)
        assert len({seconds for seconds, *_ in shown_times}) > 4


def test_the_page_holds_source_code_diagnostics_and_plans() -> None:
    base = sessions.measured(sessions.troubled())
    session = sessions.with_code(base, ArtifactCode("def call(args):\n    return args  # </script>\n"))
    other = replace(session, plan=session.plan.changed("mlp", enabled=False))
    page = page_html(session, measured_plans((session, other), session))
    assert "<summary>Code of mlp</summary>" in page
    assert page.count("&lt;/script&gt;") == 1
    assert "Measured plans" in page
    assert "mlp off" in page
    assert "Use this plan" not in page
    assert "<summary>Diagnostics (2)</summary>" in page
    assert "y = self.mlp(x)" in json.dumps(Page(page).data["part_source"])


def test_a_session_without_anything_gives_a_page(tmp_path: Any) -> None:
    path = save(sessions.session(), tmp_path / "empty.html")
    assert "No region yet." in path.read_text(encoding="utf-8")
