"""``ex.save`` and ``ex.save_plan``: write a session as JSON, HTML, SVG or CSV, and a plan as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from regional_explorer.errors import PlanError, SessionError
from regional_explorer.page.report import page_html
from regional_explorer.picture.svg import session_svg
from regional_explorer.record.files import dump_plan, dump_session, file_path, write_file
from regional_explorer.record.plan import Plan
from regional_explorer.record.plan_file import Explored
from regional_explorer.record.session import Session
from regional_explorer.tables.benchmark import timings_table
from regional_explorer.tables.frame import table_csv
from regional_explorer.tables.plan import measured_plans

ENDINGS = (".json", ".html", ".svg", ".csv")


def save(
    session: Session,
    path: str | Path,
    runs: Sequence[Session] = (),
    drawings: Callable[[Session], Mapping[str, str]] = lambda _: {},
) -> Path:
    """Write ``session`` to ``path``: ``.json`` (all of it), ``.html``, ``.svg`` (picture), ``.csv`` (timings).

    The HTML page also lists the measured plans, those of ``runs``, and has the ``drawings``: SVG by title.

    Raises:
        SessionError: the extension is not one of these, or the file cannot be written.
    """
    target = file_path(path, SessionError)
    match target.suffix.lower():
        case ".json":
            text = dump_session(session)
        case ".html":
            text = page_html(session, measured_plans(runs, session), drawings(session))
        case ".svg":
            text = session_svg(session)
        case ".csv":
            text = table_csv(timings_table(session).dataframe())
        case other:
            raise SessionError(
                f"Cannot save to {target.name!r}: the extension must be one of {', '.join(ENDINGS)}, not {other!r}."
            )
    write_file(target, text, SessionError)
    return target


def save_plan(plan: Plan, path: str | Path, explored: Explored | None = None, artifacts: tuple[str, ...] = ()) -> Path:
    """Write ``plan`` to ``path`` as JSON, with what it was explored on and the SHA-256 of its artifacts.

    Raises:
        PlanError: the file cannot be written.
    """
    target = file_path(path, PlanError)
    write_file(target, dump_plan(plan, explored, artifacts), PlanError)
    return target
