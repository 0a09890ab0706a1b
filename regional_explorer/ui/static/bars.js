// What stands around the canvas: tabs, search, buttons, legend, status line, tooltip, help.

import { button, el } from "./dom.js";
import { FACT } from "./picture.js";

const part = (name, more, ...children) => el("div", { class: `rxg-${name}`, ...more }, ...children);

export class Bars {
  constructor(root, view) {
    this.view = view;
    this.tabs = part("tabs", { role: "tablist", "aria-label": "Graphs" });
    this.search = el("input", {
      type: "search", placeholder: "Search   op:gelu  2x128  /regex/", "aria-label": "Search nodes",
      title: "Words, name: op: shape: dtype: module: line: region: state: or /a regular expression/ (key /)",
      spellcheck: "false", autocomplete: "off",
    });
    this.count = part("count", { "aria-live": "polite" });
    const make = ([name, text, title]) => [name, button(text, title, () => view.act(name), { "aria-label": title })];
    this.buttons = Object.fromEntries([
      ["previous", "↑", "Previous match (Shift+Enter)"],
      ["next", "↓", "Next match (Enter)"],
      ["matched", "Select", "Select all that was found (s)"],
      ["fit", "Fit", "Show all of it (f)"],
      ["out", "−", "Zoom out (−)"],
      ["in", "+", "Zoom in (+)"],
      ["lasso", "Lasso", "Draw around boxes to select them (l, or drag with Alt)"],
      ["upstream", "Upstream", "Select also what feeds the selection (u)"],
      ["downstream", "Downstream", "Select also what the selection feeds (d)"],
      ["open", "Expand all", "Open every module, run and repeat (e)"],
      ["close", "Collapse all", "Close every module, run and region (c)"],
      ["overlay", "Overlay", "Next figure on the regions, or none (o)"],
      ["help", "?", "Keys (?)"],
    ].map(make));
    for (const name of ["lasso", "overlay", "help"]) this.press(name, false);
    const group = (...names) => part("group", {}, ...names.map((name) => this.buttons[name]));
    this.legend = part("legend", { role: "group", "aria-label": "Legend" });
    this.status = part("selected");
    this.trail = part("trail");
    this.wait = part("wait", { text: "arranging…", hidden: true });
    this.live = part("live", { "aria-live": "polite", role: "status" });
    this.tip = part("tip", { role: "tooltip", hidden: true });
    this.help = el("dl", { class: "rxg-help", hidden: true });
    this.problem = part("problem", { role: "alert", hidden: true });
    root.append(
      part("bar", {}, this.tabs, part("find", {}, this.search, this.count, group("previous", "next", "matched"))),
      part("bar", { role: "toolbar", "aria-label": "Graph tools" },
        group("fit", "out", "in"), group("lasso", "upstream", "downstream"), group("open", "close", "overlay"), group("help")),
      this.problem,
    );
    this.foot = [part("status", {}, this.status, this.trail, this.wait), this.legend, this.live];
  }

  showTabs(tabs, current) {
    const inside = this.tabs.contains(document.activeElement);
    this.tabs.replaceChildren(...tabs.map(([id, title]) => button(title, title, () => this.view.tab(id), {
      role: "tab", "aria-selected": String(id === current), tabindex: id === current ? 0 : -1,
    })));
    if (inside) this.tabs.querySelector("[aria-selected=true]")?.focus();
  }

  showLegend(picture, theme, heat) {
    const chips = picture.regions.map((region, number) => {
      const tone = region[theme];
      const mark = el("span", { class: "rxg-chip", text: region.letter });
      mark.style.cssText = `background:${tone.fill};color:${tone.text};border:1.5px ${region.line} ${tone.stroke}`;
      const words = [region.name, region.state, region.detail].filter(Boolean).join(" · ");
      const chip = button("", `Select the nodes of ${words}`, () => this.view.pick(picture.nodesOfRegion(number)));
      chip.append(mark, el("b", { text: region.name }), el("span", { text: region.state }));
      return chip;
    });
    let used = 0;
    for (const bits of picture.boxMarks) used |= bits;
    const signs = picture.marks.filter((_, bit) => used & (1 << bit)).map(([sign, meaning]) => el("span", { text: `${sign} ${meaning}` }));
    const words = picture.states.map((text) => el("span", { text }));
    this.legend.replaceChildren(...chips, ...words, ...signs);
    if (!heat) return;
    const [low, high] = heat.ends, bar = el("i");
    bar.style.background = heat.scale;
    this.legend.append(el("span", { class: "rxg-key" }, `${this.view.overlay.title} ${low}`, bar, high));
  }

  showStatus(picture, many, elsewhere) {
    this.buttons.upstream.disabled = this.buttons.downstream.disabled = !many;
    const more = elsewhere ? `, ${elsewhere} in other graphs` : "";
    this.status.textContent = many || elsewhere ? `${many} of ${picture.nodes} nodes selected${more}` : `${picture.nodes} nodes in ${picture.boxes} boxes`;
  }

  // The modules around a node, each one a way to select all of it.
  showTrail(picture, node) {
    const path = node < 0 ? "" : picture.fact(node, FACT.module);
    if (path === this.path) return;
    this.path = path;
    const parts = path ? path.split(".") : [];
    this.trail.replaceChildren(...parts.map((part, at) => {
      const whole = parts.slice(0, at + 1).join(".");
      return button(part, `Select the nodes of module ${whole}`, () => this.view.pick(picture.nodesOfModule(whole)));
    }));
  }

  // What is known of a box, as pairs of a word and a text.
  facts(picture, box) {
    const nodes = picture.nodesIn(box);
    const node = nodes[0], piece = picture.piece(box), rows = [];
    const add = (word, text) => { if (text) rows.push([word, text]); };
    if (nodes.length && !picture.opens(box)) {
      add("node", `${picture.fact(node, FACT.name)} = ${picture.fact(node, FACT.target)}`);
      add("gives", picture.fact(node, FACT.value));
    } else {
      add("", picture.detail(box));
      add("holds", `${nodes.length} nodes · double-click opens it`);
    }
    add("module", picture.fact(node, FACT.module));
    add("line", picture.fact(node, FACT.source));
    add("reads", nodes.length < 4 ? picture.fact(node, FACT.reads) : "");
    if (piece) {
      add("region", [piece.name, piece.ops, piece.state, piece.note].filter(Boolean).join(" · "));
      add("asked", piece.asked);
      if (piece.applied !== piece.asked) add("applied", piece.applied);
      add("error", piece.error);
      add("time", piece.times);
    }
    for (const [bit, text] of picture.notes) if (nodes.some((one) => picture.flags[one] & bit)) add("note", text);
    return rows;
  }

  showTip(picture, box, x, y, stage) {
    this.tip.hidden = box < 0;
    if (box < 0) return;
    const rows = this.facts(picture, box).flatMap(([word, text]) => [el("dt", { text: word }), el("dd", { text })]);
    this.tip.replaceChildren(el("b", { text: picture.title(box) }), el("dl", {}, ...rows));
    const { offsetWidth: w, offsetHeight: h } = this.tip;
    const left = x + 16 + w > stage.clientWidth ? x - 12 - w : x + 16;
    const top = y + 14 + h > stage.clientHeight ? y - 8 - h : y + 14;
    this.tip.style.left = `${Math.max(4, left)}px`;
    this.tip.style.top = `${Math.max(4, Math.min(top, stage.clientHeight - h - 4))}px`;
  }

  press(name, on) { this.buttons[name].setAttribute("aria-pressed", String(on)); }

  say(text) { this.live.textContent = text; }
}
