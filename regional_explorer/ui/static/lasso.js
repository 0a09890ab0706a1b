// The line that is drawn around boxes to select them.

const area = (points) => {
  const path = new Path2D();
  for (const point of points) path.lineTo(...point);
  path.closePath();
  return path;
};

export function drawLasso(pen, points, ink) {
  Object.assign(pen, { globalAlpha: 0.12, fillStyle: ink, strokeStyle: ink, lineWidth: 1.5 });
  pen.fill(area(points));
  pen.globalAlpha = 1;
  pen.setLineDash([5, 3]);
  pen.stroke(area(points));
  pen.setLineDash([]);
}

// The boxes with their middle inside; `points` are of the window.
export function boxesInside(points, picture, camera, pen) {
  const path = area(points), found = new Set();
  pen.resetTransform();
  for (let box = 0; box < picture.boxes; box += 1) {
    const { x, y, w, h } = picture.rect(box);
    if (pen.isPointInPath(path, ...camera.toWindow(x + w / 2, y + h / 2))) found.add(box);
  }
  return found;
}
