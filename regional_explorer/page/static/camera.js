// The part of the picture that is in the window: `x`, `y` is the point in the middle, `k` the scale.

const MAX_SCALE = 6,
  READABLE = 0.9, // titles have 10 pixels at scale 1
  OVERVIEW = 0.5, // boxes can be told apart
  WIDEST = 1.2, // of a part of a picture that is not readable as a whole
  MARGIN = 16;

const clamp = (low, value, high) => Math.min(Math.max(value, low), high);

// The middle of the window, kept near that of the picture: at least half of the shorter one overlaps the other.
function kept(middle, picture, window) {
  const offset = Math.abs(window - picture) / 2 + Math.min(window, picture) / 4;
  return clamp(picture / 2 - offset, middle, picture / 2 + offset);
}

export class Camera {
  x = 0;
  y = 0;
  k = 1;
  width = 0;
  height = 0;
  picture = { width: 0, height: 0 };

  toPicture(px, py) {
    return [(px - this.width / 2) / this.k + this.x, (py - this.height / 2) / this.k + this.y];
  }

  toWindow(x, y) {
    return [(x - this.x) * this.k + this.width / 2, (y - this.y) * this.k + this.height / 2];
  }

  get seen() {
    const [x0, y0] = this.toPicture(0, 0);
    const [x1, y1] = this.toPicture(this.width, this.height);
    return { x0, y0, x1, y1 };
  }

  get whole() {
    const { width: w, height: h } = this.picture;
    const k = Math.min((this.width - 2 * MARGIN) / Math.max(w, 1), (this.height - 2 * MARGIN) / Math.max(h, 1));
    return clamp(0.002, k, 1.4);
  }

  exceeds(width) {
    const { width: w, height: h } = this.picture;
    return w * this.k > width - 2 * MARGIN + 1 || h * this.k > this.height - 2 * MARGIN + 1;
  }

  scale(k) {
    return clamp(Math.min(this.whole, 1) / 2, k, MAX_SCALE);
  }

  // All moves go through this: the picture never leaves the window.
  moveTo(x, y, k = this.k) {
    this.k = this.scale(k);
    this.x = kept(x, this.picture.width, this.width / this.k);
    this.y = kept(y, this.picture.height, this.height / this.k);
  }

  pan(dx, dy) {
    this.moveTo(this.x - dx / this.k, this.y - dy / this.k);
  }

  // Zoom so that the point (px, py) of the window stays in place.
  zoom(factor, px = this.width / 2, py = this.height / 2) {
    const [x, y] = this.toPicture(px, py),
      k = this.scale(this.k * factor);
    this.moveTo(x - (px - this.width / 2) / k, y - (py - this.height / 2) / k, k);
  }

  fit() {
    this.moveTo(this.picture.width / 2, this.picture.height / 2, this.whole);
  }

  // The whole picture; if its boxes, or what was opened, cannot be read then, it begins at the rectangle `opened`.
  open(opened) {
    this.fit();
    if (this.k >= (opened ? READABLE : OVERVIEW)) return;
    const { width, height } = this.picture,
      first = opened ?? { x: 0, y: 0, w: width },
      k = clamp(READABLE, (this.width - 2 * MARGIN) / Math.max(width, 1), WIDEST),
      half = (this.width / 2 - MARGIN) / k;
    const x = width <= 2 * half ? width / 2 : clamp(half, first.x + first.w / 2, width - half);
    this.moveTo(x, Math.max(first.y - 2 * MARGIN, 0) + Math.min(height / 2, (this.height / 2 - MARGIN) / k), k);
  }

  shows({ x, y, w, h }) {
    const { x0, y0, x1, y1 } = this.seen;
    return x >= x0 && y >= y0 && x + w <= x1 && y + h <= y1;
  }

  reveal({ x, y, w, h }) {
    if (this.k < READABLE) this.moveTo(this.x, this.y, READABLE);
    const room = 40 / this.k,
      { x0, y0, x1, y1 } = this.seen,
      outX = x - room < x0 || x + w + room > x1,
      outY = y - room < y0 || y + h + room > y1;
    this.moveTo(outX ? x + w / 2 : this.x, outY ? y + h / 2 : this.y);
  }
}
