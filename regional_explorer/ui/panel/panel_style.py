"""The CSS of the panel, from JupyterLab's own variables, for three widths."""

from __future__ import annotations

from collections.abc import Sequence

from regional_explorer.render.style.css import page_css
from regional_explorer.render.style.palette import Paint

STATIC_COPY = "rx-static-copy"
"""The class of the static copy, which is hidden while the panel is shown."""


HIDE_LOADING = (
    f"<style>.jp-OutputArea-child:has(.{STATIC_COPY}) + .jp-OutputArea-child"
    " > .lm-Panel:not(:has(*)) { display: none }</style>"
)
"""Added to the static copy: without a kernel JupyterLab would show "Loading widget" below it for ever."""


def style_html(paints: Sequence[Paint]) -> str:
    """Return the style element of a panel whose regions are painted with ``paints``."""
    # The class is repeated for specificity: tables repeat theirs twice to override the page's own styles.
    return f"<style>{page_css(paints)}{_CSS.replace('PANEL', '.rx-panel' * 3)}</style>"


_CSS = """
.jp-OutputArea:has(.rx-panel) > .jp-OutputArea-child:has(.rx-static-copy) { display: none }
PANEL { container-type: inline-size; border: 1px solid var(--jp-border-color2, var(--rx-box)); border-radius: 6px;
  padding: 12px 16px; gap: 14px; box-sizing: border-box; width: 100%; max-width: 1800px; overflow: hidden }
PANEL, PANEL .widget-html-content, PANEL .widget-label, PANEL button, PANEL input, PANEL select,
PANEL .widget-label-basic { font-size: 13px; line-height: 1.45 }
PANEL .rx { padding: 0 }
PANEL .widget-box { margin: 0; overflow: visible }
PANEL .jupyter-widgets { margin: 0 }
PANEL .widget-html { height: auto; min-width: 0 }
PANEL .widget-html-content { min-width: 0; width: 100% }
PANEL button.jupyter-button { height: 30px; padding: 0 12px; border-radius: 4px; width: auto; line-height: 28px;
  border: 1px solid var(--jp-border-color1, var(--rx-line)); background: var(--jp-layout-color1, var(--rx-paper));
  color: var(--jp-ui-font-color1, var(--rx-ink)); box-shadow: none }
PANEL button.jupyter-button:hover:enabled { background: var(--jp-layout-color2, var(--rx-box)) }
PANEL button.jupyter-button.mod-primary { border-color: #0b5cad; background: #0b5cad; color: #fff;
  font-weight: 600 }
PANEL button.jupyter-button.mod-primary:hover:enabled { background: #094b8e }
PANEL button.jupyter-button:disabled { opacity: .5; cursor: default }
PANEL :is(button, input, select, summary, textarea):focus-visible { outline: 2px solid #3b8eea !important;
  outline-offset: 1px }
PANEL button.jupyter-button.rx-small { width: 30px; padding: 0; border-color: transparent; background: none;
  font-size: 16px }
PANEL :is(input[type=text], input[type=number], select) { height: 30px; border-radius: 4px; padding: 0 8px;
  color: var(--jp-ui-font-color1, var(--rx-ink)); border-color: var(--jp-border-color1, var(--rx-line)) }
PANEL :is(.widget-text, .widget-dropdown, .widget-combobox) { height: 30px; width: 100% }
PANEL select { appearance: auto; background-image: none }
PANEL .widget-label { height: 30px; line-height: 30px; color: var(--jp-ui-font-color1, var(--rx-ink)) }
PANEL .widget-checkbox { width: auto; height: 30px; min-width: 0 }
PANEL .widget-label-basic { height: 30px; display: flex; align-items: center; gap: 7px; width: auto; min-width: 0 }
PANEL .widget-label-basic input { width: 15px; height: 15px; margin: 0; flex: none }
PANEL .widget-label-basic span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
PANEL h3 { font-size: 16px; margin: 0 0 2px; overflow-wrap: anywhere }
PANEL h4 { font-size: 13px; margin: 18px 0 4px }
PANEL .widget-html-content > h4:first-child { margin-top: 0 }
PANEL p { margin: 0 0 4px }

PANEL .rxt { max-height: 460px; overflow: auto }
PANEL .rxt table { border-collapse: collapse; width: 100%; font-size: 13px; margin: 0 }
PANEL .rxt :is(th, td) { padding: 4px 14px 4px 0; text-align: left; vertical-align: middle; font-weight: 400;
  border: 0; border-bottom: 1px solid var(--jp-border-color2, var(--rx-box)); background: none }
PANEL .rxt li > * { margin-right: 6px }
PANEL .rxt :is(h4, summary) { margin-top: 4px }
PANEL .rxt thead { position: sticky; top: 0; z-index: 1; background: var(--jp-layout-color0, var(--rx-paper)) }
PANEL .rxt .rxt-figure { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
PANEL .rxt button { font: inherit; color: inherit; border: 1px solid transparent; border-radius: 4px; background: none;
  padding: 2px 8px; cursor: pointer }
PANEL .rxt :is(td, li, .rx-python) button:not(.rxt-small) { border-color: var(--jp-border-color1, var(--rx-line)) }
PANEL .rxt th button { padding: 2px 0; color: var(--rx-quiet); white-space: pre }
PANEL .rxt button:hover { background: var(--jp-layout-color2, var(--rx-box)) }
PANEL .rxt button:disabled { opacity: .5; cursor: default }
PANEL .rxt tr[data-do] { cursor: pointer }
PANEL .rxt tr[data-do]:hover { background: var(--jp-layout-color2, var(--rx-box)) }
PANEL .rxt tr[aria-selected=true] { background: var(--jp-layout-color2, var(--rx-box));
  box-shadow: inset 3px 0 var(--jp-ui-font-color1, var(--rx-ink)) }
PANEL .rxt tr[aria-selected=true] b { text-decoration: underline }
PANEL .rxt tr[aria-selected=true] .rx-key { border-color: var(--rx-quiet) }
PANEL .rxt tr:focus-visible { outline: 2px solid #3b8eea; outline-offset: -2px }
PANEL .rxt .rxt-name { overflow-wrap: anywhere; min-width: 8em; max-width: 24em; padding-left: 8px }
PANEL .rxt .rxt-name > * { vertical-align: middle; margin: 0 8px 0 0 }
PANEL .rxt .rxt-name input { width: 15px; height: 15px }
PANEL .rxt b { font-weight: 600 }
PANEL .rxt .rxt-name b { display: -webkit-inline-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical;
  overflow: hidden; max-width: 100% }
PANEL .rxt small { font-size: 12px; color: var(--rx-quiet); margin-left: 7px }
PANEL .rxt .rxt-last { text-align: right; white-space: nowrap; padding-right: 0 }
PANEL .rx-key { display: inline-block; margin: 1px 6px 1px 0; padding: 0 6px; border-radius: 4px; font-size: 12px;
  border: 1px solid var(--jp-border-color2, var(--rx-line)); font-family: var(--jp-code-font-family, monospace) }
PANEL .rx-config { display: grid; grid-template-columns: minmax(0, 1fr); gap: 14px 28px; padding: 10px 0 10px 12px;
  border-left: 3px solid var(--jp-border-color2, var(--rx-box));
  margin: 6px 0 4px 8px }
PANEL .rx-config > .widget-vbox { gap: 6px }
PANEL .rx-config > .widget-vbox { overflow: hidden }
PANEL .rx-field { display: grid; align-items: center; column-gap: 12px; row-gap: 2px;
  grid-template-columns: minmax(0, 460px) minmax(70px, 320px) 30px; justify-content: start }
PANEL .rx-config > .widget-vbox > .rx-input { max-width: 460px }
PANEL .rx-key-search { max-width: 560px }
PANEL .rxt .rx-keys { list-style: none; margin: 4px 0 0; padding: 0; max-height: 340px; overflow: auto;
  border: 1px solid var(--jp-border-color2, var(--rx-box)); border-radius: 4px }
PANEL .rxt .rx-keys li { padding: 5px 10px; border-bottom: 1px solid var(--jp-border-color2, var(--rx-box)) }
PANEL .rxt .rx-keys li > * { margin: 0 }
PANEL .rx-keys li > :first-child { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 10px }
PANEL .rx-keys button { margin-left: auto; flex: none }
PANEL .rx-keys code, PANEL .rx-keys span { overflow-wrap: anywhere }
PANEL .rx-keys code { background: none; color: inherit; padding: 0; font-size: 12.5px }
PANEL .rx-keys .rx-doc { display: -webkit-box; -webkit-line-clamp: 3; -webkit-box-orient: vertical; overflow: hidden }
PANEL .rx-keys li:is(:hover, :focus-within) .rx-doc { -webkit-line-clamp: none }
PANEL .rx-field > .widget-html .widget-html-content { line-height: 1.3 }
PANEL .rx-python { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center }
PANEL .rx-views { display: grid; grid-template-columns: minmax(0, 1fr); gap: 14px }
PANEL .rx-views .rxs-list { max-height: 220px !important; padding: 4px 0 8px }
PANEL .rxs-list > style + details > summary { margin-top: 2px }
PANEL .rx-python code { padding: 3px 8px; overflow: auto; max-height: 7em; overflow-wrap: anywhere;
  background: var(--jp-layout-color2, var(--rx-box));
  border-radius: 4px; color: inherit; font-size: 12px }
PANEL .rx-field > .widget-checkbox .widget-label-basic { flex-direction: row-reverse; justify-content: flex-end;
  gap: 0 }
PANEL .rx-field > .widget-checkbox .widget-label-basic span { width: calc(15em + 8px); text-align: right;
  padding-right: 8px; box-sizing: border-box; font-family: var(--jp-code-font-family, monospace) }
PANEL .rx-field .widget-label { font-family: var(--jp-code-font-family, monospace) }
PANEL .rx-error-line { grid-column: 1 / -1; color: var(--rx-bad) }
PANEL .rx-field .rx-error-line { padding-left: calc(15em + 8px) }
PANEL .rx-wrong :is(input, select) { border-color: var(--rx-bad) !important; box-shadow: 0 0 0 1px var(--rx-bad) }

PANEL .rx-editing { display: flex; flex-wrap: wrap; gap: 6px 8px; align-items: center }
PANEL .rx-editing .widget-text { width: 200px }
PANEL .rx-editing .widget-html { margin-right: 8px }
PANEL .rx-preview:has(.widget-html-content:empty) { display: none }
PANEL .rx-preview { max-width: 1000px; margin-top: 4px }
PANEL .rx-marking { display: grid; gap: 6px 16px; align-items: center;
  grid-template-columns: 200px minmax(0, 460px) minmax(0, 260px) auto; justify-content: start }
PANEL .rx-marking .widget-label { width: 60px; text-align: left }
PANEL .rx-actions { gap: 8px; padding-top: 14px; border-top: 1px solid var(--jp-border-color2, var(--rx-box)) }
PANEL .rx-buttons { display: flex; flex-wrap: wrap; gap: 8px; align-items: center }
PANEL .rx-budget { width: 170px; margin-left: 8px }
PANEL .rx-variants { display: flex; flex-wrap: wrap; gap: 2px 18px; align-items: center }
PANEL .rx-progress { display: flex; flex-wrap: wrap; gap: 4px 14px; align-items: center; min-height: 30px }
PANEL .rx-progress .widget-hprogress { width: 240px; height: 14px }
PANEL .rx-progress .widget-html { flex: 1 1 260px }
PANEL .rx-alert { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 12px; align-items: start;
  padding: 8px 12px; border: 1px solid var(--rx-bad); border-radius: 4px }
PANEL .rx-alert .widget-html-content { color: var(--rx-bad); overflow: auto; max-height: 240px;
  overflow-wrap: anywhere; white-space: normal }
PANEL .rx-alert details { color: var(--jp-ui-font-color1, var(--rx-ink)) }
PANEL .rx-alert code { display: block; overflow-x: auto; white-space: pre }

@container (min-width: 1100px) {
  PANEL .rx-views { grid-template-columns: minmax(0, 13fr) minmax(0, 8fr) }
  PANEL .rx-views .rxs-list { max-height: 574px !important }
  PANEL .rx-config { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr) }
}
@container (max-width: 900px) {
  PANEL .rxt :is(table, tbody, thead) { display: block }
  PANEL .rxt tr { display: flex; flex-wrap: wrap; align-items: center; gap: 0 16px; padding: 5px 0 5px 8px;
    border-bottom: 1px solid var(--jp-border-color2, var(--rx-box)) }
  PANEL .rxt :is(th, td) { border: 0; padding: 2px 0 }
  PANEL .rxt td[data-head]:not(.rxt-state, .rxt-config)::before { content: attr(data-head) " "; color: var(--rx-quiet) }
  PANEL .rxt td.rxt-name { flex: 1 1 calc(100% - 11em); padding-left: 0; max-width: none }
  PANEL .rxt .rxt-none { display: none }
  PANEL .rxt .rxt-last { order: -1; margin-left: auto; flex: 0 0 auto }
  PANEL .rxt td.rxt-name { order: -2 }
  PANEL .rxt th.rxt-name { flex: 0 0 auto; min-width: 0 }
  PANEL .rx-marking { grid-template-columns: minmax(0, 1fr) minmax(0, 2fr) }
  PANEL .rx-marking > button { justify-self: start }
}
@container (max-width: 640px) or ((min-width: 1100px) and (max-width: 1600px)) {
  PANEL .rx-field { grid-template-columns: minmax(0, 460px) 30px }
  PANEL .rx-field > :nth-child(2) { grid-row: 2; padding-left: calc(15em + 8px) }
  PANEL .rx-field > :nth-child(4) { grid-row: 3 }
}
@container (max-width: 640px) {
  PANEL .rx-marking { grid-template-columns: minmax(0, 1fr) }
  PANEL .rx-budget { margin-left: 0 }
}
"""
