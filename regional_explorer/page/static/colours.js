// The colours, lines and hatching of boxes and hulls; and the colours of an overlay.

const DASHES = { solid: [], dashed: [6, 3], dotted: [1.5, 2.5] };
const FOLD_DASH = [3, 2]; // of a box with several ops
const SHADES = 16; // how many steps of colour shares of the time are rounded to

// The style of a box by its look and the `tone` and `line` of its region, if any. An empty fill is transparent.
export function boxStyle(look, { paper, box, edge, ink, quiet, bad }, tone, line, failed) {
  const own = tone ? { ...tone, fill: paper } : { fill: box, stroke: edge, text: ink };
  const byLook = {
    piece: { fill: tone?.fill, dash: DASHES[line] },
    run: { dash: FOLD_DASH },
    stack: { dash: FOLD_DASH, deep: true },
    module: { line: 1.2 },
    view: { line: 0.5, size: 8 },
    input: { fill: "", stroke: "", text: quiet },
  }[look];
  const ofFailed = failed && { stroke: bad, text: bad, line: 1.6 };
  return { quiet, line: 0.8, dash: [], size: 10, ...own, ...byLook, ...ofFailed };
}

export function hullStyle(state, { paper, bad }, tone, line) {
  const byState = {
    eager: { fill: paper, dash: DASHES.dotted },
    stale: { hatch: 10 },
    failed: { hatch: 8, crossed: true, stroke: bad, text: bad, line: 1.8 },
  }[state];
  return { ...tone, ground: tone.fill, line: 1.1, dash: DASHES[line], ...byState };
}

const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

// A colour of the scale, from 0 to 1, and the colour in which text on it can be read.
export function shade(scale, place) {
  const [cold, warm] = scale.map(channels),
    mixed = cold.map((channel, i) => Math.round(channel * (1 - place) + warm[i] * place));
  const [red, green, blue] = mixed.map((channel) => (channel / 255) ** 2.2),
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return {
    fill: `#${mixed.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`,
    text: (light + 0.05) ** 2 > 0.0525 ? "#000000" : "#ffffff",
  };
}

// The colours and labels of an overlay in a picture: a function of a piece and a box. Figures are of pieces, shares of
// the time of boxes; a box has the colour of a group that all of its ops are in.
export function heatOf(overlay, picture, { scale, tones }) {
  if (!overlay) return () => undefined;
  if (overlay.groups) {
    const { nodes, groups } = picture.outline;
    return (_, box) => {
      const ops = picture.nodesIn(box).filter((node) => nodes[node].op === node);
      const [group, ...others] = new Set(ops.map((node) => groups[overlay.title]?.[node]));
      return others.length ? undefined : tones[overlay.groups.indexOf(group)];
    };
  }
  if (overlay.values) {
    return (piece) => {
      const [place, label] = overlay.values[piece?.id] ?? [];
      return label && { label, ...shade(scale, place) };
    };
  }
  const most = picture.owners.reduce((longest, { time }) => Math.max(longest, time?.[0] ?? 0), 0) || 1;
  return (_, box) => {
    const time = picture.owners[box]?.time;
    return time && shade(scale, Math.round((SHADES * time[0]) / most) / SHADES);
  };
}

export function hatch({ stroke, hatch: step, crossed }) {
  const tile = new OffscreenCanvas(step, step),
    pen = tile.getContext("2d");
  Object.assign(pen, { strokeStyle: stroke, globalAlpha: 0.4, lineWidth: 0.8 });
  for (const shift of [-step, 0, step]) {
    pen.moveTo(shift, step);
    pen.lineTo(shift + step, 0);
    if (crossed) {
      pen.moveTo(shift, 0);
      pen.lineTo(shift + step, step);
    }
  }
  pen.stroke();
  return tile;
}
