// Writes text on a canvas: widths are measured once, and text is shrunk or cut to fit.

const MOST_WIDTHS = 6000; // that are cached
export const PLUS = 12; // room for the sign of a box that can be opened

export class Letters {
  constructor(pen) {
    this.pen = pen;
    this.widths = new Map();
  }

  font(family) {
    this.family = family;
    this.widths.clear();
  }

  write(text, x, y, size, colour, weight = 400) {
    this.pen.font = `${weight} ${size}px ${this.family}`;
    this.pen.fillStyle = colour;
    this.pen.fillText(text, x, y);
  }

  width(text, size) {
    const key = `${size} ${text}`;
    if (!this.widths.has(key)) {
      if (this.widths.size > MOST_WIDTHS) this.widths.clear();
      this.pen.font = `${size}px ${this.family}`;
      this.widths.set(key, this.pen.measureText(text).width);
    }
    return this.widths.get(key);
  }

  // A text that is too wide is shrunk before it is cut.
  squeeze(text, size, room) {
    const shrunk = Math.max(size * 0.78, size * Math.min(1, room / this.width(text, size)));
    return [this.clip(text, shrunk, room + 0.5), shrunk];
  }

  clip(text, size, room) {
    if (this.width(text, size) <= room) return text;
    let kept = text;
    while (kept && this.width(`${kept}…`, size) > room) kept = kept.slice(0, -1);
    return `${kept}…`;
  }

  boxes(picture, boxes, style, faint) {
    for (const box of boxes) {
      const plus = picture.opens(box) ? PLUS : 0;
      let { x, y, w, h } = picture.rect(box);
      const plain = picture.detail(box),
        detail = plain && ((picture.timed && picture.owners[box].time?.[1]) || plain),
        signs = picture.signs(box),
        signsWidth = signs ? this.width(signs, 7.5) + 3 : 0;
      this.pen.globalAlpha = faint(box) ? 0.7 : 1;
      if (plus) this.write("+", x + 5, y + h / 2 + 0.5, 11, style.quiet, 600);
      x += plus;
      w -= plus;
      const [title, size] = this.squeeze(picture.title(box), style.size, w - 4 - signsWidth),
        width = this.width(title, size),
        left = x + (w - width - signsWidth) / 2,
        middle = y + h / 2 - (detail ? 5.5 : 0) + 0.5;
      this.write(title, left, middle, size, style.text);
      if (signs) this.write(signs, left + width + 3, middle, 7.5, style.quiet);
      if (detail) {
        const [second, small] = this.squeeze(detail, 8, w - 6);
        this.write(second, x + (w - this.width(second, small)) / 2, middle + 11, small, style.quiet);
      }
    }
    this.pen.globalAlpha = 1;
  }

  // Labels of hulls keep their size, and stay in the window with part of the hull. The first of `words` to fit is used,
  // else the last, a letter, in the middle.
  hull(words, { x, y, w, h }, colour, paper, k) {
    if (w < 12 || h < 12) return;
    const size = Math.round(Math.max(10, Math.min(13, 10.5 * k)) * 2) / 2;
    const text = words.find((word) => this.width(word, size) * 1.08 <= w - 10) ?? words.at(-1);
    const head = 20 * k; // where the header is too low for the text, it stands on top of the hull
    let left = Math.max(x, 0) + 6,
      middle = head < size ? y - size / 2 : y + (head + 1) / 2;
    middle = Math.min(Math.max(middle, size / 2 + 3), y + h - size / 2 - 4);
    if (text === words.at(-1)) [left, middle] = [x + w / 2 - this.width(text, size) / 2, y + h / 2];
    this.pen.font = `600 ${size}px ${this.family}`;
    Object.assign(this.pen, { strokeStyle: paper, lineWidth: 3, lineJoin: "round" });
    this.pen.strokeText(text, left, middle); // over edges that enter the hull
    this.write(text, left, middle, size, colour, 600);
  }
}
