"""Bundles the JavaScript and CSS files of this folder for the views.

A widget takes one script. The files here are plain modules; each is wrapped in a function, so that their names cannot
clash. Comments and indentation are stripped, because every saved widget repeats the script.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
_IMPORT = re.compile(r'^import \{ (.+) \} from "\./(\w+)\.js";$', re.MULTILINE)
_JSDOC = re.compile(r"/\*\*.*?\*/ ?")
_EXPORT = re.compile(r"^export (?:async )?(?:class|const|function) (\w+)", re.MULTILINE)


def script(name: str) -> str:
    """Return the JavaScript module ``name`` bundled with its imports."""
    parts: dict[str, str] = {}
    _collect(name, parts)
    return _stripped("\n".join(parts.values()))


def style(*names: str) -> str:
    """Return the style sheets ``names`` as one."""
    return _stripped("\n".join((FOLDER / f"{name}.css").read_text(encoding="utf-8") for name in names))


def _collect(name: str, parts: dict[str, str], *, entry: bool = True) -> None:
    text = (FOLDER / f"{name}.js").read_text(encoding="utf-8")
    for _, needed in _IMPORT.findall(text):
        if needed not in parts:
            _collect(needed, parts, entry=False)
    text = _IMPORT.sub(r"const { \1 } = \2_module;", text)
    names = ", ".join(_EXPORT.findall(text))
    text = re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE)
    if not entry:
        body = re.sub(r"^export default .*", "", text, flags=re.MULTILINE)
        text = f"const {name}_module = (() => {{\n{body}\nreturn {{ {names} }};\n}})();"
    parts[name] = text


def _stripped(text: str) -> str:
    lines = (_JSDOC.sub("", line).strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))
