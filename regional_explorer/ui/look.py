"""The style sheet of the panel: JupyterLab's own variables, so that both themes fit, and three widths."""

from __future__ import annotations

from collections.abc import Sequence

from regional_explorer.render.palette import Paint
from regional_explorer.render.style import page_css

TWIN = "rx-twin"
"""The class around the static output beside the panel. While the panel lives, it shows the same and the twin rests."""


def style_html(paints: Sequence[Paint]) -> str:
    """Return the style element of a panel whose regions are painted with ``paints``."""
    return f"<style>{page_css(paints)}{_SHEET}</style>"


_SHEET = """
.jp-OutputArea:has(.rx-panel) > .jp-OutputArea-child:has(.rx-twin) { display: none }
.rx-panel { container-type: inline-size; border: 1px solid var(--jp-border-color2, var(--rx-box)); border-radius: 6px;
  padding: 12px 16px; gap: 14px; box-sizing: border-box; width: 100%; max-width: 1800px; overflow: hidden }
.rx-panel, .rx-panel .widget-html-content, .rx-panel .widget-label, .rx-panel button, .rx-panel input, .rx-panel select,
.rx-panel .widget-label-basic { font-size: 13px; line-height: 1.45 }
.rx-panel .rx { padding: 0 }
.rx-panel .widget-box { margin: 0; overflow: visible }
.rx-panel .jupyter-widgets { margin: 0 }
.rx-panel .widget-html { height: auto; min-width: 0 }
.rx-panel .widget-html-content { min-width: 0; width: 100% }
.rx-panel button.jupyter-button { height: 30px; padding: 0 12px; border-radius: 4px; width: auto; line-height: 28px;
  border: 1px solid var(--jp-border-color1, var(--rx-line)); background: var(--jp-layout-color1, var(--rx-paper));
  color: var(--jp-ui-font-color1, var(--rx-ink)); box-shadow: none }
.rx-panel button.jupyter-button:hover:enabled { background: var(--jp-layout-color2, var(--rx-box)) }
.rx-panel button.jupyter-button.mod-primary { border-color: #0b5cad; background: #0b5cad; color: #fff;
  font-weight: 600 }
.rx-panel button.jupyter-button.mod-primary:hover:enabled { background: #094b8e }
.rx-panel button.jupyter-button:disabled { opacity: .5; cursor: default }
.rx-panel :is(button, input, select, summary):focus-visible { outline: 2px solid #3b8eea; outline-offset: 1px }
.rx-panel button.jupyter-button.rx-small { width: 30px; padding: 0; border-color: transparent; background: none;
  font-size: 16px }
.rx-panel :is(input[type=text], input[type=number], select) { height: 30px; border-radius: 4px; padding: 0 8px;
  color: var(--jp-ui-font-color1, var(--rx-ink)); border-color: var(--jp-border-color1, var(--rx-line)) }
.rx-panel :is(.widget-text, .widget-dropdown, .widget-combobox) { height: 30px; width: 100% }
.rx-panel .widget-label { height: 30px; line-height: 30px; color: var(--jp-ui-font-color1, var(--rx-ink)) }
.rx-panel .widget-checkbox { width: auto; height: 30px; min-width: 0 }
.rx-panel .widget-label-basic { height: 30px; display: flex; align-items: center; gap: 7px; width: auto; min-width: 0 }
.rx-panel .widget-label-basic input { width: 15px; height: 15px; margin: 0; flex: none }
.rx-panel .widget-label-basic span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.rx-panel h3 { font-size: 16px; margin: 0 0 2px; overflow-wrap: anywhere }
.rx-panel h4 { font-size: 13px; margin: 0 0 4px }
.rx-panel p { margin: 0 0 4px }

.rx-panel .rx-regions { gap: 0; border-top: 1px solid var(--jp-border-color2, var(--rx-box)) }
.rx-panel .rx-region { border-bottom: 1px solid var(--jp-border-color2, var(--rx-box)); padding: 5px 0 }
.rx-panel .rx-row { display: grid; align-items: center; column-gap: 12px;
  grid-template-columns: 26px minmax(110px, 200px) minmax(0, 1fr) auto 30px }
.rx-panel .rx-facts { display: grid; align-items: center; column-gap: 16px;
  grid-template-columns: minmax(92px, max-content) 110px 92px minmax(0, 1fr) }
.rx-panel .rx-facts > span { overflow-wrap: anywhere }
.rx-panel .rx-key { display: inline-block; margin: 1px 6px 1px 0; padding: 0 6px; border-radius: 4px; font-size: 12px;
  border: 1px solid var(--jp-border-color2, var(--rx-line)); font-family: var(--jp-code-font-family, monospace) }
.rx-panel .rx-config { padding: 8px 0 10px 38px; gap: 8px }
.rx-panel .rx-config > .widget-vbox { gap: 6px }
.rx-panel .rx-field, .rx-panel .rx-adding { display: grid; align-items: center; column-gap: 12px; row-gap: 2px;
  grid-template-columns: minmax(0, 460px) minmax(70px, 170px) 30px }
.rx-panel .rx-adding { grid-template-columns: minmax(0, 460px) auto minmax(0, 300px); justify-content: start }
.rx-panel .rx-field > .widget-checkbox .widget-label-basic { flex-direction: row-reverse; justify-content: flex-end;
  gap: 0 }
.rx-panel .rx-field > .widget-checkbox .widget-label-basic span { width: calc(15em + 8px); text-align: right;
  padding-right: 8px; box-sizing: border-box; font-family: var(--jp-code-font-family, monospace) }
.rx-panel .rx-field .widget-label { font-family: var(--jp-code-font-family, monospace) }
.rx-panel .rx-error-line { grid-column: 1 / -1; color: var(--rx-bad) }
.rx-panel .rx-field .rx-error-line { padding-left: calc(15em + 8px) }
.rx-panel .rx-wrong :is(input, select) { border-color: var(--rx-bad) !important; box-shadow: 0 0 0 1px var(--rx-bad) }
.rx-panel .rx-about:has(.widget-html-content:empty) { display: none }
.rx-panel .rx-about { max-width: 760px; color: var(--jp-ui-font-color2, var(--rx-quiet)) }

.rx-panel .rx-marking { display: grid; gap: 6px 16px; align-items: center;
  grid-template-columns: 200px minmax(0, 460px) minmax(0, 260px) auto; justify-content: start }
.rx-panel .rx-marking .widget-label { width: 60px; text-align: left }
.rx-panel .rx-actions { gap: 8px }
.rx-panel .rx-buttons { display: flex; flex-wrap: wrap; gap: 8px; align-items: center }
.rx-panel .rx-budget { width: 170px; margin-left: 8px }
.rx-panel .rx-variants { display: flex; flex-wrap: wrap; gap: 2px 18px; align-items: center }
.rx-panel .rx-progress { display: flex; flex-wrap: wrap; gap: 4px 14px; align-items: center; min-height: 30px }
.rx-panel .rx-progress .widget-hprogress { width: 240px; height: 14px }
.rx-panel .rx-progress .widget-html { flex: 1 1 260px }
.rx-panel .rx-alert { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 12px; align-items: start;
  padding: 8px 12px; border: 1px solid var(--rx-bad); border-radius: 4px }
.rx-panel .rx-alert .widget-html-content { color: var(--rx-bad); overflow-wrap: anywhere; white-space: normal }
.rx-panel .rx-alert details { color: var(--jp-ui-font-color1, var(--rx-ink)) }
.rx-panel .rx-alert code { display: block; overflow-x: auto; white-space: pre }

@container (max-width: 900px) {
  .rx-panel .rx-row { grid-template-columns: 26px minmax(0, 1fr) auto 30px; row-gap: 2px }
  .rx-panel .rx-row > :nth-child(3) { grid-row: 2; grid-column: 2 / -1 }
  .rx-panel .rx-facts { display: flex; flex-wrap: wrap; gap: 2px 16px }
  .rx-panel .rx-marking { grid-template-columns: minmax(0, 1fr) minmax(0, 2fr) }
  .rx-panel .rx-marking > button { justify-self: start }
}
@container (max-width: 640px) {
  .rx-panel .rx-config { padding-left: 12px }
  .rx-panel .rx-field { grid-template-columns: minmax(0, 1fr) 30px }
  .rx-panel .rx-field > :nth-child(2) { grid-row: 2; padding-left: calc(15em + 8px) }
  .rx-panel .rx-field > :nth-child(4) { grid-row: 3 }
  .rx-panel .rx-adding { grid-template-columns: minmax(0, 1fr) auto }
  .rx-panel .rx-marking { grid-template-columns: minmax(0, 1fr) }
  .rx-panel .rx-budget { margin-left: 0 }
}
"""
