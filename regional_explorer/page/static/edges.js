// Draws edges on a canvas: along the curve of the layout if there is one, else from box to box.

// The points where an edge leaves its first box and reaches its second.
/** @returns {[number, number, number, number]} */
export function ends({ edges, rects }, edge) {
  const tail = rects[edges[edge][0]],
    head = rects[edges[edge][1]];
  return [tail.x + tail.w / 2, tail.y + tail.h, head.x + head.w / 2, head.y];
}

export function trace(pen, { curves }, edge, x0, y0, x1, y1) {
  const points = curves[edge];
  pen.moveTo(x0, y0);
  if (!points.length) {
    const bend = y1 < y0 - 8 ? 36 : Math.max((y1 - y0) / 2, 4);
    pen.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
  }
  for (let i = 2; i < points.length; i += 6) {
    pen.bezierCurveTo(points[i], points[i + 1], points[i + 2], points[i + 3], points[i + 4], points[i + 5]);
  }
}

// Draw the arrow heads of the edges that end in the window.
export function arrows(pen, picture, seen, colour) {
  pen.beginPath();
  picture.curves.forEach((points, edge) => {
    const [, , x, y] = ends(picture, edge);
    if (x < seen.x0 || x > seen.x1 || y < seen.y0 || y > seen.y1) return;
    const dx = points.length ? x - points.at(-4) : 0,
      dy = points.length ? y - points.at(-3) : 1;
    const size = 4 / (Math.hypot(dx, dy) || 1),
      u = dx * size,
      v = dy * size;
    pen.moveTo(x, y);
    pen.lineTo(x - u - v * 0.5, y - v + u * 0.5);
    pen.lineTo(x - u + v * 0.5, y - v - u * 0.5);
  });
  pen.fillStyle = colour;
  pen.fill();
}
