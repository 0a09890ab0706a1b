"""Writing a session to a file; the ending says how."""

from __future__ import annotations

from pathlib import Path

from regional_explorer.errors import SessionError
from regional_explorer.export.frames import timings_frame
from regional_explorer.record.codec import dump_session
from regional_explorer.record.session import Session
from regional_explorer.render.picture.svg import session_svg
from regional_explorer.render.report.html import page_html

ENDINGS = (".json", ".html", ".svg", ".csv")


def save(session: Session, path: str | Path) -> Path:
    """Write ``session`` to ``path``: ``.json`` (all of it), ``.html``, ``.svg`` (picture), ``.csv`` (timings).

    Raises:
        SessionError: the ending is none of these, or the file cannot be written.
    """
    target = Path(path)
    match target.suffix.lower():
        case ".json":
            text = dump_session(session)
        case ".html":
            text = page_html(session, picture=session_svg(session))
        case ".svg":
            text = session_svg(session)
        case ".csv":
            text = timings_frame(session).to_csv(index=False)
        case other:
            raise SessionError(f"Cannot save to {target.name!r}: the ending {other!r} is none of {', '.join(ENDINGS)}.")
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SessionError(f"Cannot write {target}: {error.strerror or error}.") from error
    return target
