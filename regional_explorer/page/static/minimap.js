// The minimap: the whole picture beside the drawing, with a frame that is pressed or dragged to move the window.

const MOST_WIDTH = 180,
  MOST_HEIGHT = 130,
  LEAST_SIDE = 20,
  LEAST_WINDOW = 480, // of the drawing and it
  ROOM = 16; // around it

export class Minimap {
  k = 1; // its scale
  still; // the picture at that scale

  constructor(canvas, camera, painter, moveTo, signal) {
    this.canvas = canvas;
    this.camera = camera;
    this.painter = painter;
    const jump = (event) => {
      if (!(event.buttons & 1)) return;
      canvas.setPointerCapture(event.pointerId);
      const box = canvas.getBoundingClientRect();
      moveTo((event.clientX - box.left) / this.k, (event.clientY - box.top) / this.k);
    };
    for (const name of ["pointerdown", "pointermove"]) canvas.addEventListener(name, jump, { signal });
  }

  // Draw the picture once; on every move only the frame is redrawn.
  prepare() {
    const { width, height } = this.camera.picture;
    this.still = this.painter.copy({ x0: 0, y0: 0, x1: width, y1: height }, this.k, {});
    for (const [side, length] of Object.entries({ width, height })) {
      const size = Math.max(length * this.k, LEAST_SIDE);
      this.canvas[side] = Math.round(size * this.painter.ratio);
      this.canvas.style[side] = `${size}px`;
    }
  }

  // Its width in a stage of this width; 0 where all of the picture is seen.
  strip(stage) {
    const { width, height } = this.camera.picture;
    this.k = Math.min(MOST_WIDTH / width, MOST_HEIGHT / height);
    if (stage < LEAST_WINDOW || !this.camera.exceeds(stage)) return 0;
    return Math.round(Math.max(width * this.k, LEAST_SIDE)) + ROOM;
  }

  draw() {
    const { camera, canvas } = this,
      { ground, ratio } = this.painter,
      { x0, y0, x1, y1 } = camera.seen;
    if (canvas.hidden) return;
    const pen = canvas.getContext("2d");
    pen.fillStyle = ground.paper;
    pen.fillRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(this.still, 0, 0);
    const k = this.k * ratio;
    pen.strokeStyle = ground.ink;
    pen.lineWidth = 1.5 * ratio;
    pen.strokeRect(x0 * k, y0 * k, (x1 - x0) * k, (y1 - y0) * k);
  }
}
