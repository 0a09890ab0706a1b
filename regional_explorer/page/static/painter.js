// Draws a picture on a canvas: hulls, edges, boxes and the trail of a node, as far as they are in the window.

import { boxStyle, hatch, hullStyle } from "./colours.js";
import { arrows, ends, trace } from "./edges.js";
import { Letters } from "./letters.js";

const TEXT = 0.42,
  SHAPES = 0.16; // the smallest scales at which text and the shapes of boxes are drawn
const MOST_PIXELS = 2e7; // of a copy that is drawn once and then moved
const ROOM = 40; // room around the picture for what extends beyond it
const HIT = "#ffb000";

const inWindow =
  ({ x0, y0, x1, y1 }) =>
  (rects, i) =>
    rects[i] < x1 && rects[i] + rects[i + 2] > x0 && rects[i + 1] < y1 && rects[i + 1] + rects[i + 3] > y0;

/** @returns {[number, number, number, number]} */
const sides = ({ x, y, w, h }) => [x, y, w, h];

export class Painter {
  ratio = 1;
  paper = "";
  /** @type {any} the colours of everything except regions */ ground;
  /** @type {any} the colour and label of a piece under the overlay */ heat;
  /** @type {any[]} how the frame of each kind of piece is drawn */ hulls = [];
  regions = [];
  looks = [];
  /** @type {import("./picture.js").Picture} */ picture;
  /** @type {any[]} what the last frame was made from */ made;
  /** @type {any} the copy that is moved */ still;

  constructor(canvas) {
    this.canvas = canvas;
    /** @type {CanvasRenderingContext2D | OffscreenCanvasRenderingContext2D} */
    this.pen = canvas.getContext("2d", { alpha: false });
    this.letters = new Letters(this.pen);
  }

  resize(width, height) {
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
  }

  // Boxes of the same style are grouped, so that each style is drawn with one path. `colours` are those of a theme.
  prepare(picture, colours, paper, font, heat) {
    const looks = new Map(),
      { regions } = picture,
      tones = regions.map(({ hue }) => colours.tones[hue]),
      worn = { ...colours, ground: { ...colours.ground, paper } };
    const hulls = new Map(); // by region and state
    this.hulls = picture.pieces.map(({ region, state }) => {
      const key = `${region} ${state}`;
      if (!hulls.has(key)) {
        const style = hullStyle(state, worn, tones[region], regions[region].line);
        hulls.set(key, { ...style, tile: style.hatch && this.pen.createPattern(hatch(style), "repeat") });
      }
      return hulls.get(key);
    });
    Object.assign(this, { picture, paper, heat, ground: worn.ground, regions: tones.map(({ stroke }) => stroke) });
    this.letters.font(font);
    for (let box = 0; box < picture.boxes; box += 1) {
      const tint = heat(picture.piece(box), box),
        region = picture.piece(box)?.region,
        look = picture.look(box),
        failed = picture.failed(box);
      const key = `${look} ${region} ${failed} ${tint?.fill}`;
      if (!looks.has(key)) {
        const style = boxStyle(look, worn, tones[region], regions[region]?.line, failed);
        looks.set(key, { style: { ...style, ...tint, ...(tint && { quiet: tint.text }) }, boxes: [] });
      }
      looks.get(key).boxes.push(box);
    }
    this.looks = [...looks.values()];
  }

  // `lit` says what is highlighted: the numbers of selected and found nodes per box, and single boxes.
  draw(camera, lit) {
    const { pen, ratio, picture } = this,
      { k, seen } = camera;
    const made = [picture.rects, this.looks, lit.found, lit.finding, lit.selecting, k, ratio];
    const steady = made.every((part, i) => part === this.made?.[i]);
    this.made = made;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = this.paper;
    pen.fillRect(0, 0, camera.width, camera.height);
    const [x, y] = camera.toWindow(0, 0);
    pen.setTransform(ratio * k, 0, 0, ratio * k, ratio * x, ratio * y);
    if (!steady || !this.move(camera, lit)) this.scene(k, seen, lit);
    this.lit(k, seen, lit);
    this.rings(k, inWindow(seen), lit);
    this.titles(camera, inWindow(seen));
    if (lit.line) this.lasso(lit.line);
  }

  lasso(line) {
    const { ink } = this.ground;
    Object.assign(this.pen, { globalAlpha: 0.12, fillStyle: ink });
    this.pen.fill(line);
    this.stroke(ink, 1.5, [5, 3], 1, line);
  }

  stroke(strokeStyle, lineWidth, dash = [], globalAlpha = 1, path = null) {
    const { pen } = this;
    Object.assign(pen, { strokeStyle, lineWidth, globalAlpha });
    pen.setLineDash(dash);
    if (path) pen.stroke(path);
    else pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  scene(k, seen, lit) {
    this.drawHulls(k, inWindow(seen));
    this.edges(k, seen, lit);
    this.boxes(k, inWindow(seen), lit);
  }

  // On the second frame at the same scale, the window and its surroundings are drawn into a copy, which is then moved:
  // this is fast however much is visible.
  move(camera, lit) {
    const { pen, ratio, picture, made } = this,
      scale = camera.k * ratio,
      { x0, y0, x1, y1 } = camera.seen;
    const [left, top] = [Math.max(x0, -ROOM), Math.max(y0, -ROOM)];
    const [right, bottom] = [Math.min(x1, picture.width + ROOM), Math.min(y1, picture.height + ROOM)];
    let { still } = this;
    const fresh = still && still.made.every((part, i) => part === made[i]);
    if (!fresh || left < still.x0 || top < still.y0 || right > still.x1 || bottom > still.y1) {
      const wide = (x1 - x0) / 2,
        high = (y1 - y0) / 2;
      still = {
        made,
        x0: Math.max(x0 - wide, -ROOM),
        y0: Math.max(y0 - high, -ROOM),
        x1: Math.min(x1 + wide, picture.width + ROOM),
        y1: Math.min(y1 + high, picture.height + ROOM),
      };
      const pixels = (still.x1 - still.x0) * (still.y1 - still.y0) * scale ** 2;
      if (!(pixels > 0) || pixels > MOST_PIXELS) return false;
      still.canvas = this.copy(still, camera.k, ratio, lit);
      this.still = still;
    }
    const [x, y] = camera.toWindow(still.x0, still.y0);
    pen.save();
    pen.resetTransform();
    pen.drawImage(still.canvas, Math.round(x * ratio), Math.round(y * ratio));
    pen.restore();
    return true;
  }

  copy(area, k, ratio, lit) {
    const { pen } = this,
      { x0, y0, x1, y1 } = area,
      scale = k * ratio;
    const canvas = new OffscreenCanvas(Math.ceil((x1 - x0) * scale) || 1, Math.ceil((y1 - y0) * scale) || 1);
    this.pen = this.letters.pen = canvas.getContext("2d");
    try {
      this.pen.setTransform(scale, 0, 0, scale, -x0 * scale, -y0 * scale);
      this.scene(k, area, lit);
    } finally {
      this.pen = this.letters.pen = pen;
    }
    return canvas;
  }

  drawHulls(k, inside) {
    const { pen } = this,
      { groups, groupPieces, pieces } = this.picture;
    for (let i = 0; i < groups.length; i += 4) {
      if (!inside(groups, i)) continue;
      const number = groupPieces[i / 4],
        style = this.hulls[number];
      pen.beginPath();
      pen.roundRect(groups[i], groups[i + 1], groups[i + 2], groups[i + 3], 7);
      pen.fillStyle = this.heat(pieces[number])?.fill ?? style.fill;
      pen.fill();
      if (style.tile) pen.fillStyle = style.tile;
      if (style.tile && k > SHAPES) pen.fill();
      this.stroke(style.stroke, Math.max(style.line, 0.8 / k), style.dash);
    }
  }

  edges(k, seen, lit) {
    const { pen } = this,
      { edges } = this.picture,
      far = [];
    pen.beginPath();
    for (let edge = 0; edge < edges.length / 2; edge += 1) {
      const [x0, y0, x1, y1] = ends(this.picture, edge);
      if (Math.max(x0, x1) + 60 < seen.x0 || Math.min(x0, x1) - 60 > seen.x1) continue;
      if (Math.max(y0, y1) + 60 < seen.y0 || Math.min(y0, y1) - 60 > seen.y1) continue;
      if (y1 < y0 - 8) far.push(edge);
      else if (k >= SHAPES) trace(pen, this.picture, edge, x0, y0, x1, y1);
      else if ((Math.abs(x1 - x0) + y1 - y0) * k > 4) {
        pen.moveTo(x0, y0);
        pen.lineTo(x1, y1);
      }
    }
    this.stroke(this.ground.edge, Math.max(0.9, 0.5 / k), [], lit.selecting ? 0.45 : 0.95);
    // Edges from one column to the next cross half of the picture, so they are drawn faint.
    this.trail(far, this.ground.edge, 0.9, 0.3);
    if (k > 0.3) arrows(pen, this.picture, seen, this.ground.quiet);
  }

  // Draw the edges of boxes that are selected or hovered.
  lit(k, seen, lit) {
    const { edges } = this.picture;
    const chosen = (box) => lit.selected[box] || box === lit.hover || box === lit.cursor;
    const near = [],
      far = [];
    if (lit.selecting || lit.hover >= 0 || lit.cursor >= 0) {
      for (let edge = 0; edge < edges.length / 2; edge += 1) {
        if (!chosen(edges[edge * 2]) && !chosen(edges[edge * 2 + 1])) continue;
        const [, y0, , y1] = ends(this.picture, edge);
        (y1 < y0 - 8 ? far : near).push(edge);
      }
    }
    this.trail(near, this.ground.ink, Math.max(1.5, 1.2 / k), 0.9);
    this.trail(far, this.ground.ink, 1, 0.4);
  }

  trail(edges, colour, width, alpha) {
    this.pen.beginPath();
    for (const edge of edges) trace(this.pen, this.picture, edge, ...ends(this.picture, edge));
    this.stroke(colour, width, [], alpha);
  }

  boxes(k, inside, lit) {
    const { pen, picture } = this,
      { rects } = picture,
      labelled = [];
    for (const { style, boxes } of this.looks) {
      const here = boxes.filter((box) => inside(rects, box * 4));
      if (k >= TEXT) labelled.push({ style, here });
      // While searching, boxes without hits are faint.
      for (const faint of lit.finding ? [true, false] : [false]) {
        const drawn = lit.finding ? here.filter((box) => Boolean(lit.found[box]) !== faint) : here;
        if (!drawn.length) continue;
        pen.globalAlpha = faint ? 0.3 : 1;
        if (k < SHAPES) {
          pen.fillStyle = style.stroke || style.text;
          for (const box of drawn) pen.fillRect(...sides(picture.rect(box)));
          continue;
        }
        for (const offset of style.deep ? [4, 0] : [0]) {
          pen.beginPath();
          for (const box of drawn) this.outline(picture.rect(box), k, offset);
          pen.fillStyle = style.fill;
          if (style.fill) pen.fill();
          if (style.stroke) this.stroke(style.stroke, style.line, style.dash, pen.globalAlpha);
        }
      }
    }
    pen.globalAlpha = 1;
    if (k >= SHAPES) this.shares(inside);
    pen.textBaseline = "middle";
    for (const { style, here } of labelled)
      this.letters.boxes(this.picture, here, style, (box) => lit.finding && !lit.found[box]);
  }

  // Draw a bar at the bottom of closed folds: the share of each region.
  shares(inside) {
    const { pen, picture, regions } = this;
    for (const box of picture.shared) {
      if (!inside(picture.rects, box * 4)) continue;
      const { x, y, w, h } = picture.rect(box);
      let left = x + 4;
      for (const [region, share] of picture.shares(box)) {
        pen.fillStyle = regions[region];
        pen.fillRect(left, y + h - 3, Math.max((w - 8) * share, 2), 3);
        left += (w - 8) * share;
      }
    }
  }

  outline({ x, y, w, h }, k, offset) {
    if (k * h > 6) this.pen.roundRect(x + offset, y + offset, w, h, 4);
    else this.pen.rect(x + offset, y + offset, w, h);
  }

  rings(k, inside, lit) {
    const { pen, picture } = this,
      { ink } = this.ground,
      scale = Math.min(k, 1);
    const ring = (box, gap, width, colour, dash, alpha) => {
      const { x, y, w, h } = picture.rect(box),
        margin = gap / scale;
      pen.beginPath();
      pen.roundRect(x - margin, y - margin, w + 2 * margin, h + 2 * margin, 4 + margin);
      const dashes = dash.map((length) => length / scale);
      this.stroke(colour, width / scale, dashes, alpha);
    };
    for (let box = 0; box < picture.boxes; box += 1) {
      if (!inside(picture.rects, box * 4)) continue;
      if (lit.finding && lit.found[box]) ring(box, 2.5, box === lit.hit ? 4 : 3, HIT, [], box === lit.hit ? 1 : 0.75);
      // A box with only some nodes selected has a dashed ring.
      if (lit.selected[box]) ring(box, 1.5, 2, ink, lit.selected[box] < picture.nodesIn(box).length ? [4, 3] : []);
    }
    for (const box of lit.linked) ring(box, 1, 1.4, ink, [2, 2], 0.8);
    if (lit.hover >= 0) ring(lit.hover, 0, 1.4, ink, []);
    if (lit.cursor >= 0) ring(lit.cursor, 4, 1.5, ink, [1.5, 2.5]);
  }

  titles(camera, inside) {
    const { pen, picture, ratio, letters } = this;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    picture.titles.forEach(([x, y], i) => {
      const [left, top] = camera.toWindow(x, y + 28); // where the boxes begin
      letters.write(picture.graphs[i].title, left, top - Math.max(16, 20 * camera.k), 12, this.ground.quiet, 600);
    });
    for (let i = 0; i < picture.groups.length; i += 4) {
      if (!inside(picture.groups, i)) continue;
      const number = picture.groupPieces[i / 4],
        piece = picture.pieces[number];
      const style = this.hulls[number],
        tint = this.heat(piece);
      const { words, speedup } = piece,
        label = tint?.label ?? speedup,
        { letter } = picture.regions[piece.region];
      const [left, top, w, h] = picture.groups.subarray(i, i + 4),
        [x, y] = camera.toWindow(left, top);
      const labelled = words.map((word) => (label ? `${word} · ${label}` : word)),
        rect = { x, y, w: w * camera.k, h: h * camera.k };
      const [ink, paper] = [tint?.text ?? style.text, tint?.fill ?? style.ground];
      letters.hull([...labelled, tint ? label : words.at(-1), letter], rect, ink, paper, camera.k);
    }
  }
}
