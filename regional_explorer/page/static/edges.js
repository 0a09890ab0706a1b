// Draws edges on a canvas: along the curve of the layout if there is one, else from box to box.

// The points where an edge leaves its first box and reaches its second.
/** @returns {[number, number, number, number]} */
export function ends({ edges, rects }, edge) {
  const tail = edges[edge * 2] * 4,
    head = edges[edge * 2 + 1] * 4;
  return [
    rects[tail] + rects[tail + 2] / 2,
    rects[tail + 1] + rects[tail + 3],
    rects[head] + rects[head + 2] / 2,
    rects[head + 1],
  ];
}

export function trace(pen, { curves, curveEnds }, edge, x0, y0, x1, y1) {
  const first = edge ? curveEnds[edge - 1] : 0,
    end = curveEnds[edge];
  if (end - first < 8) {
    const bend = y1 < y0 - 8 ? 36 : Math.max((y1 - y0) / 2, 4);
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
    return;
  }
  pen.moveTo(curves[first], curves[first + 1]);
  let i = first + 2;
  for (; i + 5 < end; i += 6) {
    pen.bezierCurveTo(curves[i], curves[i + 1], curves[i + 2], curves[i + 3], curves[i + 4], curves[i + 5]);
  }
  if (i + 1 < end) pen.lineTo(curves[i], curves[i + 1]);
}

// Draw the arrow heads of the edges that end in the window.
export function arrows(pen, picture, seen, colour) {
  const { edges, curves, curveEnds } = picture;
  pen.beginPath();
  for (let edge = 0; edge < edges.length / 2; edge += 1) {
    const last = curveEnds[edge],
      length = last - (edge ? curveEnds[edge - 1] : 0);
    const curved = length >= 8;
    const [x, y] = curved ? curves.subarray(last - 2, last) : ends(picture, edge).slice(2);
    if (x < seen.x0 || x > seen.x1 || y < seen.y0 || y > seen.y1) continue;
    const dx = curved ? x - curves[last - 4] : 0,
      dy = curved ? y - curves[last - 3] : 1;
    const size = 4 / (Math.hypot(dx, dy) || 1),
      u = dx * size,
      v = dy * size;
    pen.moveTo(x, y);
    pen.lineTo(x - u - v * 0.5, y - v + u * 0.5);
    pen.lineTo(x - u + v * 0.5, y - v - u * 0.5);
  }
  pen.fillStyle = colour;
  pen.fill();
}
