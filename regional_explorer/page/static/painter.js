// Draws a picture on a canvas: hulls, edges and boxes, as far as they are in the window.

import { boxStyle, hatch, hullStyle } from "./colours.js";
import { alike } from "./dom.js";
import { Letters } from "./letters.js";

const TEXT = 0.42,
  SHAPES = 0.16; // the smallest scales at which text and the shapes of boxes are drawn
const MOST_PIXELS = 2e7; // of a copy that is drawn once and then moved
const ROOM = 40; // room around the picture for what extends beyond it
const HIT = "#ffb000";

const meets = ({ x, y, w, h }, { x0, y0, x1, y1 }) => x < x1 && x + w > x0 && y < y1 && y + h > y0;

const ends = (points) => [points[0], points[1], points.at(-2), points.at(-1)];

// The part of a picture that is in the window, or beyond it by no more than a share of its size.
function partOf({ width, height }, { x0, y0, x1, y1 }, beyond) {
  const wide = beyond * (x1 - x0),
    high = beyond * (y1 - y0);
  return {
    x0: Math.max(x0 - wide, -ROOM),
    y0: Math.max(y0 - high, -ROOM),
    x1: Math.min(x1 + wide, width + ROOM),
    y1: Math.min(y1 + high, height + ROOM),
  };
}

export class Painter {
  ratio = 1;
  ground; // the colours of everything except regions
  hulls = []; // each with its piece, style, and the colour and label of the overlay
  regions = []; // the colours of regions
  looks = []; // the boxes by style
  /** @type {import("./picture.js").Picture} */ picture;
  made = []; // what the last frame was made from
  /** @type {any} the copy that is moved */ still = { made: [] };

  constructor(canvas) {
    this.canvas = canvas;
    /** @type {any} of the canvas, or of a copy */
    this.pen = canvas.getContext("2d", { alpha: false });
    this.letters = new Letters(this.pen);
  }

  resize(width, height) {
    this.ratio = devicePixelRatio;
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
  }

  // Boxes of the same style are grouped, so that each style is drawn with one path. `colours` are those of a theme.
  prepare(picture, colours, { backgroundColor: paper, fontFamily: font }, heat) {
    const { regions } = picture,
      tones = regions.map(({ hue }) => colours.tones[hue]),
      ground = { ...colours.ground, paper },
      tiles = {}; // the hatching of hulls, by region and state
    Object.assign(this, { picture, ground, regions: tones.map(({ stroke }) => stroke) });
    this.letters.font(font);
    this.hulls = picture.hulls.map((piece, hull) => {
      const { region, state } = piece,
        style = hullStyle(state, ground, tones[region], regions[region].line);
      if (style.hatch) style.tile = tiles[`${region} ${state}`] ??= this.pen.createPattern(hatch(style), "repeat");
      return { rect: picture.groups[hull], piece, style, tint: heat(piece) };
    });
    const tints = picture.owners.map(({ piece }, box) => heat(piece, box));
    const key = (box) => [picture.look(box), picture.piece(box)?.region, picture.failed(box), tints[box]?.fill].join();
    this.looks = [...Map.groupBy(picture.owners.keys(), key).values()].map((boxes) => {
      const [box] = boxes,
        region = picture.piece(box)?.region,
        style = boxStyle(picture.look(box), ground, tones[region], regions[region]?.line, picture.failed(box)),
        tint = tints[box];
      return { style: { ...style, ...tint, ...(tint && { quiet: tint.text }) }, boxes };
    });
  }

  // `lit` says what is highlighted: the numbers of selected and found nodes per box, and single boxes.
  draw(camera, lit) {
    const { pen, ratio, picture } = this,
      { k, seen } = camera,
      made = [picture.rects, this.looks, lit.found, lit.finding, lit.selecting, k, ratio],
      steady = alike(made, this.made);
    this.made = made;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = this.ground.paper;
    pen.fillRect(0, 0, camera.width, camera.height);
    const [x, y] = camera.toWindow(0, 0);
    pen.setTransform(ratio * k, 0, 0, ratio * k, ratio * x, ratio * y);
    if (!steady || !this.move(camera, lit)) this.scene(k, seen, lit);
    this.lit(k, lit);
    this.rings(k, seen, lit);
    this.titles(camera);
    if (lit.line) this.lasso(lit.line);
  }

  lasso(line) {
    const { ink } = this.ground;
    Object.assign(this.pen, { globalAlpha: 0.12, fillStyle: ink });
    this.pen.fill(line);
    this.stroke(ink, 1.5, [5, 3], 1, line);
  }

  stroke(strokeStyle, lineWidth, dash, globalAlpha = 1, path = null) {
    const { pen } = this;
    Object.assign(pen, { strokeStyle, lineWidth, globalAlpha });
    pen.setLineDash(dash);
    pen.stroke(...(path ? [path] : []));
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  scene(k, seen, lit) {
    this.drawHulls(k, seen);
    this.edges(k, seen, lit);
    this.boxes(k, seen, lit);
  }

  // On the second frame at the same scale, the window and its surroundings are drawn into a copy, which is then moved:
  // this is fast however much is visible.
  move(camera, lit) {
    const { pen, ratio, picture, made } = this,
      { x0, y0, x1, y1 } = partOf(picture, camera.seen, 0);
    let { still } = this;
    if (!alike(still.made, made) || x0 < still.x0 || y0 < still.y0 || x1 > still.x1 || y1 > still.y1) {
      still = { made, ...partOf(picture, camera.seen, 0.5) };
      const pixels = (still.x1 - still.x0) * (still.y1 - still.y0) * (camera.k * ratio) ** 2;
      if (!(pixels > 0) || pixels > MOST_PIXELS) return false;
      still.canvas = this.copy(still, camera.k, lit);
      this.still = still;
    }
    const [x, y] = camera.toWindow(still.x0, still.y0);
    pen.save();
    pen.resetTransform();
    pen.drawImage(still.canvas, Math.round(x * ratio), Math.round(y * ratio));
    pen.restore();
    return true;
  }

  copy(area, k, lit) {
    const { pen } = this,
      { x0, y0, x1, y1 } = area,
      scale = k * this.ratio;
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

  drawHulls(k, seen) {
    const { pen } = this;
    for (const { rect, style, tint } of this.hulls) {
      if (!meets(rect, seen)) continue;
      pen.beginPath();
      pen.roundRect(rect.x, rect.y, rect.w, rect.h, 7);
      pen.fillStyle = tint?.fill ?? style.fill;
      pen.fill();
      if (style.tile) pen.fillStyle = style.tile;
      if (style.tile && k > SHAPES) pen.fill();
      this.stroke(style.stroke, Math.max(style.line, 0.8 / k), style.dash);
    }
  }

  edges(k, seen, lit) {
    const curves = this.picture.curves.filter((points) => {
      const [x0, y0, x1, y1] = ends(points),
        [x, y] = [Math.min(x0, x1) - 60, Math.min(y0, y1) - 60];
      return meets({ x, y, w: Math.max(x0, x1) + 60 - x, h: Math.max(y0, y1) + 60 - y }, seen);
    });
    this.trails(curves, this.ground.edge, [Math.max(0.9, 0.5 / k), lit.selecting ? 0.45 : 0.95], [0.9, 0.3], k);
    if (k > 0.3) this.arrows(curves);
  }

  lit(k, lit) {
    const { curves, edges } = this.picture,
      chosen = (box) => lit.selected[box] || box === lit.hover || box === lit.cursor;
    const found = curves.filter((_, edge) => edges[edge].some(chosen));
    this.trails(found, this.ground.ink, [Math.max(1.5, 1.2 / k), 0.9], [1, 0.4]);
  }

  // Edges from one column to the next cross half of the picture, so they are drawn faint.
  trails(curves, colour, near, far, k = 1) {
    const byNear = Map.groupBy(curves, (points) => points.at(-1) >= points[1] - 8);
    this.trail(byNear.get(true) ?? [], colour, near, k);
    this.trail(byNear.get(false) ?? [], colour, far, 1);
  }

  trail(curves, colour, [width, alpha], k) {
    const { pen } = this;
    pen.beginPath();
    for (const points of curves) {
      const [x0, y0, x1, y1] = ends(points);
      if (k < SHAPES && (Math.abs(x1 - x0) + y1 - y0) * k <= 4) continue;
      pen.moveTo(x0, y0);
      if (k < SHAPES) pen.lineTo(x1, y1);
      else for (let i = 2; i < points.length; i += 6) pen.bezierCurveTo(...points.slice(i, i + 6));
    }
    this.stroke(colour, width, [], alpha);
  }

  arrows(curves) {
    const { pen } = this;
    pen.beginPath();
    for (const points of curves) {
      const [fromX, fromY, x, y] = points.slice(-4),
        size = 4 / (Math.hypot(x - fromX, y - fromY) || 1),
        u = (x - fromX) * size,
        v = (y - fromY) * size;
      pen.moveTo(x, y);
      pen.lineTo(x - u - v * 0.5, y - v + u * 0.5);
      pen.lineTo(x - u + v * 0.5, y - v - u * 0.5);
    }
    pen.fillStyle = this.ground.quiet;
    pen.fill();
  }

  boxes(k, seen, lit) {
    const { pen, picture } = this,
      labelled = [],
      isFaint = (box) => Boolean(lit.finding && !lit.found[box]);
    for (const { style, boxes } of this.looks) {
      const here = boxes.filter((box) => meets(picture.rect(box), seen));
      if (k >= TEXT) labelled.push({ style, here });
      for (const faint of [true, false]) {
        const rects = here.filter((box) => isFaint(box) === faint).map(picture.rect);
        if (!rects.length) continue;
        pen.globalAlpha = faint ? 0.3 : 1;
        if (k < SHAPES) {
          pen.fillStyle = style.stroke || style.text;
          for (const { x, y, w, h } of rects) pen.fillRect(x, y, w, h);
          continue;
        }
        for (const offset of style.deep ? [4, 0] : [0]) {
          pen.beginPath();
          for (const { x, y, w, h } of rects) pen.roundRect(x + offset, y + offset, w, h, k * h > 6 ? 4 : 0);
          pen.fillStyle = style.fill;
          if (style.fill) pen.fill();
          if (style.stroke) this.stroke(style.stroke, style.line, style.dash, pen.globalAlpha);
        }
      }
    }
    pen.globalAlpha = 1;
    if (k >= SHAPES) this.shares(seen);
    pen.textBaseline = "middle";
    for (const { style, here } of labelled) this.letters.boxes(picture, here, style, isFaint);
  }

  shares(seen) {
    const { pen, picture, regions } = this;
    for (const box of picture.shared) {
      const rect = picture.rect(box);
      if (!meets(rect, seen)) continue;
      let left = rect.x + 4;
      for (const [region, share] of picture.shares(box)) {
        const width = (rect.w - 8) * share;
        pen.fillStyle = regions[region];
        pen.fillRect(left, rect.y + rect.h - 3, Math.max(width, 2), 3);
        left += width;
      }
    }
  }

  rings(k, seen, lit) {
    const { pen, picture } = this,
      { ink } = this.ground,
      scale = Math.min(k, 1);
    const ring = (box, gap, width, colour, dash, alpha) => {
      const { x, y, w, h } = picture.rect(box),
        margin = gap / scale,
        dashes = dash.map((length) => length / scale);
      pen.beginPath();
      pen.roundRect(x - margin, y - margin, w + 2 * margin, h + 2 * margin, 4 + margin);
      this.stroke(colour, width / scale, dashes, alpha);
    };
    for (let box = 0; box < picture.boxes; box += 1) {
      if (!meets(picture.rect(box), seen)) continue;
      const [wide, alpha] = box === lit.hit ? [4, 1] : [3, 0.75];
      if (lit.finding && lit.found[box]) ring(box, 2.5, wide, HIT, [], alpha);
      // A box with only some nodes selected has a dashed ring.
      if (lit.selected[box]) ring(box, 1.5, 2, ink, lit.selected[box] < picture.nodesIn(box).length ? [4, 3] : []);
    }
    for (const box of lit.linked) ring(box, 1, 1.4, ink, [2, 2], 0.8);
    if (lit.hover >= 0) ring(lit.hover, 0, 1.4, ink, []);
    if (lit.cursor >= 0) ring(lit.cursor, 4, 1.5, ink, [1.5, 2.5]);
  }

  titles(camera) {
    const { pen, picture, ratio, letters } = this;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    picture.titles.forEach(([x, y], i) => {
      const { title } = picture.graphs[i],
        [left, top] = camera.toWindow(x, y + 28), // where the boxes begin
        [end] = camera.toWindow(picture.titles[i + 1]?.[0] ?? picture.width, 0),
        seen = Math.max(left, Math.min(8, end - letters.width(title, 12) * 1.08)); // beside what is seen of the graph
      letters.write(title, seen, top - Math.max(16, 20 * camera.k), 12, this.ground.quiet, 600);
    });
    for (const { rect, piece, style, tint } of this.hulls) {
      if (!meets(rect, camera.seen)) continue;
      const { words, speedup, region } = piece,
        label = tint?.label ?? speedup,
        labelled = words.map((word) => (label ? `${word} · ${label}` : word)),
        shorter = [tint ? label : words.at(-1), picture.regions[region].letter];
      const [x, y] = camera.toWindow(rect.x, rect.y),
        shown = { x, y, w: rect.w * camera.k, h: rect.h * camera.k },
        { text, fill } = tint ?? { ...style, fill: style.ground };
      letters.hull([...labelled, ...shorter], shown, text, fill, camera.k);
    }
  }
}
