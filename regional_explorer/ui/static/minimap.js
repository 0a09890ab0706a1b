// The whole picture in a corner, with a frame around what is in the window; a press or a drag moves the window there.

const WIDEST = 180, HIGHEST = 130, SMALLEST = 20;

export class Minimap {
  constructor(canvas, camera, moved, signal) {
    Object.assign(this, { canvas, camera, still: document.createElement("canvas") });
    const go = (event) => {
      const box = canvas.getBoundingClientRect();
      camera.x = (event.clientX - box.left) / this.k;
      camera.y = (event.clientY - box.top) / this.k;
      moved();
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      go(event);
    }, { signal });
    canvas.addEventListener("pointermove", (event) => { if (event.buttons & 1) go(event); }, { signal });
  }

  // Draw the picture once; only the frame is drawn at every move.
  dress(painter) {
    const { picture, ground } = painter;
    this.ground = ground;
    this.size = { w: picture.width, h: picture.height };
    this.k = Math.min(WIDEST / picture.width, HIGHEST / picture.height);
    this.ratio = window.devicePixelRatio || 1;
    const width = Math.max(picture.width * this.k, SMALLEST), height = Math.max(picture.height * this.k, SMALLEST);
    for (const canvas of [this.canvas, this.still]) {
      canvas.width = Math.round(width * this.ratio);
      canvas.height = Math.round(height * this.ratio);
    }
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.still.getContext("2d");
    pen.fillStyle = ground.paper;
    pen.fillRect(0, 0, this.still.width, this.still.height);
    pen.scale(this.ratio * this.k, this.ratio * this.k);
    const least = 1.2 / this.k;
    for (let at = 0; at < picture.groups.length; at += 4) {
      pen.fillStyle = painter.tones[picture.pieces[picture.groupPieces[at / 4]].region].stroke;
      pen.globalAlpha = 0.35;
      pen.fillRect(...picture.groups.subarray(at, at + 4));
    }
    for (const { style, boxes } of painter.looks) {
      pen.fillStyle = style.stroke || style.text;
      pen.globalAlpha = 0.85;
      for (const box of boxes) {
        const { x, y, w, h } = picture.rect(box);
        pen.fillRect(x, y, Math.max(w, least), Math.max(h * 0.7, least));
      }
    }
  }

  draw(wanted) {
    const { camera, canvas, ratio } = this;
    const { x0, y0, x1, y1 } = camera.seen;
    const all = x0 <= 0 && y0 <= 0 && x1 >= this.size?.w && y1 >= this.size?.h;
    canvas.hidden = !wanted || !this.size || all || camera.width < 480;
    if (canvas.hidden) return;
    const pen = canvas.getContext("2d");
    pen.drawImage(this.still, 0, 0);
    const k = this.k * ratio;
    pen.strokeStyle = this.ground.ink;
    pen.lineWidth = 1.5 * ratio;
    pen.strokeRect(x0 * k, y0 * k, (x1 - x0) * k, (y1 - y0) * k);
  }
}
