// Draws the hatching of stale and failed pieces of regions.

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
