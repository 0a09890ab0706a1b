// Which part of the picture is in the window, how large: `x`, `y` is the point in its middle, `k` the scale.

const SMALLEST = 0.005, LARGEST = 6, READABLE = 0.62, MARGIN = 16;

export class Camera {
  constructor() { Object.assign(this, { x: 0, y: 0, k: 1, width: 0, height: 0 }); }

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

  pan(dx, dy) {
    this.x -= dx / this.k;
    this.y -= dy / this.k;
  }

  // Zoom so that what lies at the window's point (px, py) stays there.
  zoom(factor, px = this.width / 2, py = this.height / 2) {
    const [x, y] = this.toPicture(px, py);
    this.k = Math.min(LARGEST, Math.max(SMALLEST, this.k * factor));
    this.x = x - (px - this.width / 2) / this.k;
    this.y = y - (py - this.height / 2) / this.k;
  }

  fit({ width: w, height: h }) {
    const k = Math.min((this.width - 2 * MARGIN) / Math.max(w, 1), (this.height - 2 * MARGIN) / Math.max(h, 1));
    Object.assign(this, { k: Math.min(1.4, Math.max(SMALLEST, k)), x: w / 2, y: h / 2 });
  }

  // The first look: all of it where that can be read, else its beginning.
  open(picture) {
    this.fit(picture);
    if (this.k >= READABLE) return;
    this.k = 0.9;
    const wide = picture.width * this.k > this.width - 2 * MARGIN;
    const high = picture.height * this.k > this.height - 2 * MARGIN;
    if (wide) this.x = (this.width / 2 - MARGIN) / this.k;
    if (high) this.y = (this.height / 2 - MARGIN) / this.k;
  }

  // Move as little as brings a rectangle into the window.
  reveal({ x, y, w, h }) {
    if (this.k < READABLE) this.k = 0.9;
    const room = 40 / this.k;
    const { x0, y0, x1, y1 } = this.seen;
    if (x - room < x0 || x + w + room > x1) this.x = x + w / 2;
    if (y - room < y0 || y + h + room > y1) this.y = y + h / 2;
  }
}
