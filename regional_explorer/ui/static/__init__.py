"""The scripts and styles of our own views, read from this folder and put together for the page.

A widget takes one script. The files here are plain modules; each becomes a function of its own, so that their names
cannot meet, and is called once. Comments and indents stay at home: every saved widget repeats what is sent.
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
_IMPORT = re.compile(r'^import \{ (.+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:class|const|function) (\w+)", re.MULTILINE)


def script(name: str) -> str:
    """Return the module ``name`` with all that it imports, as one module."""
    parts: dict[str, str] = {}
    _collect(name, parts)
    *needed, entry = parts.values()
    return _bare("\n".join([*needed, entry]))


def style(name: str) -> str:
    """Return the style sheet ``name``, after what all views have in common."""
    texts = ((HERE / f"{part}.css").read_text(encoding="utf-8") for part in ("common", name))
    return _bare("\n".join(texts))


def _collect(name: str, parts: dict[str, str], *, entry: bool = True) -> None:
    text = (HERE / f"{name}.js").read_text(encoding="utf-8")
    for _, needed in _IMPORT.findall(text):
        if needed not in parts:
            _collect(needed, parts, entry=False)
    text = _IMPORT.sub(r"const { \1 } = \2_module;", text)
    if not entry:
        names = ", ".join(_EXPORT.findall(text))
        body = re.sub(r"^export ", "", text, flags=re.MULTILINE)
        text = f"const {name}_module = (() => {{\n{body}\nreturn {{ {names} }};\n}})();"
    parts[name] = text


def _bare(text: str) -> str:
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))
