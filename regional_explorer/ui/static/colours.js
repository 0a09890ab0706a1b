// Colours that are not a region's: mixtures, hatches, and the scale of the overlay.

const COLD = { light: "#f3f6fa", dark: "#22303f" }, WARM = { light: "#08306b", dark: "#9ecbff" };

function mix(one, other, share) {
  const part = (colour, at) => parseInt(colour.slice(at, at + 2), 16);
  const mixed = [1, 3, 5].map((at) => Math.round(part(one, at) * (1 - share) + part(other, at) * share));
  return `rgb(${mixed.join()})`;
}

// A tile of slanted lines, crossed by others or not.
export function hatch(colour, step, crossed) {
  const tile = new OffscreenCanvas(step, step), pen = tile.getContext("2d");
  Object.assign(pen, { strokeStyle: colour, globalAlpha: 0.4, lineWidth: 0.8 });
  for (const shift of [-step, 0, step]) {
    pen.moveTo(shift, step);
    pen.lineTo(shift + step, 0);
    if (crossed) { pen.moveTo(shift, 0); pen.lineTo(shift + step, step); }
  }
  pen.stroke();
  return tile;
}

// The overlay as colours of pieces: a scale of lightness, which needs no sense of colour, with the number beside it.
export function heatOf({ values = {}, unit = "" }, ground, theme) {
  const all = Object.values(values), low = Math.min(...all), high = Math.max(...all);
  const figure = (value) => `${Number(value.toPrecision(3))} ${unit}`.trim();
  const colour = (share) => mix(COLD[theme], WARM[theme], share * 0.8);
  const heat = (piece) => {
    const value = values[piece.id];
    if (value === undefined) return null;
    const share = high > low ? (value - low) / (high - low) : 0.5;
    return { fill: colour(share), label: figure(value), text: share > 0.45 ? ground.paper : ground.ink };
  };
  return Object.assign(heat, { ends: [figure(low), figure(high)], scale: `linear-gradient(90deg, ${colour(0)}, ${colour(1)})` });
}
