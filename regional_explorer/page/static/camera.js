// The part of the picture that is in the window: `x`, `y` is the point in the middle, `k` the scale.

const MAX_SCALE = 6,
  READABLE = 0.62,
  MARGIN = 16;

const clamp = (low, value, high) => Math.min(Math.max(value, low), high);

// How far the middle of the picture may be from that of the window, given half the length of each: at least half of the
// shorter one always overlaps the other.
const maxOffset = (picture, window) => Math.abs(window - picture) + Math.min(window, picture) / 2;

export class Camera {
  x = 0;
  y = 0;
  k = 1;
  width = 0;
  height = 0;
  /** The size of the whole picture. */
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

  // The scale at which all of the picture is in the window.
  get whole() {
    const { width: w, height: h } = this.picture;
    const k = Math.min((this.width - 2 * MARGIN) / Math.max(w, 1), (this.height - 2 * MARGIN) / Math.max(h, 1));
    return clamp(0.002, k, 1.4);
  }

  // All moves go through this: the picture never leaves the window.
  moveTo(x, y, k = this.k) {
    const { width: w, height: h } = this.picture;
    this.k = clamp(Math.min(this.whole, 1) / 2, k, MAX_SCALE);
    const offsetX = maxOffset(w / 2, this.width / 2 / this.k),
      offsetY = maxOffset(h / 2, this.height / 2 / this.k);
    this.x = clamp(w / 2 - offsetX, x, w / 2 + offsetX);
    this.y = clamp(h / 2 - offsetY, y, h / 2 + offsetY);
  }

  shift(dx, dy) {
    this.moveTo(this.x + dx, this.y + dy);
  }

  pan(dx, dy) {
    this.shift(-dx / this.k, -dy / this.k);
  }

  // Zoom so that the point (px, py) of the window stays in place.
  zoom(factor, px = this.width / 2, py = this.height / 2) {
    const [x, y] = this.toPicture(px, py);
    const k = clamp(Math.min(this.whole, 1) / 2, this.k * factor, MAX_SCALE);
    this.moveTo(x - (px - this.width / 2) / k, y - (py - this.height / 2) / k, k);
  }

  fit() {
    this.moveTo(this.picture.width / 2, this.picture.height / 2, this.whole);
  }

  // The initial position: the whole picture if it is readable at that scale, else its beginning.
  open() {
    this.fit();
    if (this.k >= READABLE) return;
    const k = 0.9,
      { width: w, height: h } = this.picture;
    const tooWide = w * k > this.width - 2 * MARGIN,
      tooHigh = h * k > this.height - 2 * MARGIN;
    this.moveTo(tooWide ? (this.width / 2 - MARGIN) / k : this.x, tooHigh ? (this.height / 2 - MARGIN) / k : this.y, k);
  }

  /** Whether all of a rectangle is in the window. */
  shows({ x, y, w, h }) {
    const { x0, y0, x1, y1 } = this.seen;
    return x >= x0 && y >= y0 && x + w <= x1 && y + h <= y1;
  }

  // Move just enough to bring a rectangle into the window.
  reveal({ x, y, w, h }) {
    if (this.k < READABLE) this.moveTo(this.x, this.y, 0.9);
    const room = 40 / this.k;
    const { x0, y0, x1, y1 } = this.seen;
    const outX = x - room < x0 || x + w + room > x1,
      outY = y - room < y0 || y + h + room > y1;
    this.moveTo(outX ? x + w / 2 : this.x, outY ? y + h / 2 : this.y);
  }
}
