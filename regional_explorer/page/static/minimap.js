// The minimap: the whole picture beside the drawing, with a frame that is pressed or dragged to move the window.

const MOST_WIDTH = 180,
  MOST_HEIGHT = 130,
  LEAST_SIDE = 20,
  LEAST_WINDOW = 480; // of the drawing and it

export class Minimap {
  k = 1; // its scale
  still; // the picture at that scale

  constructor(canvas, graph) {
    this.canvas = canvas;
    this.camera = graph.camera;
    this.painter = graph.painter;
    canvas.onpointerdown = canvas.onpointermove = (event) => {
      if (!(event.buttons & 1)) return;
      canvas.setPointerCapture(event.pointerId);
      graph.move("moveTo", event.offsetX / this.k, event.offsetY / this.k);
    };
  }

  // Draw the picture once; on every move only the frame is redrawn.
  prepare() {
    const { width, height } = this.camera.picture;
    this.still = this.painter.copy({ x0: 0, y0: 0, x1: width, y1: height }, this.k, {});
    for (const [side, length] of Object.entries({ width, height })) {
      const size = Math.round(Math.max(length * this.k, LEAST_SIDE));
      this.canvas[side] = Math.round(size * this.painter.ratio);
      this.canvas.style[side] = `${size}px`;
    }
  }

  // Whether it helps in a stage of this width: not where all of the picture is seen.
  helps(stage) {
    const { width, height } = this.camera.picture;
    this.k = Math.min(MOST_WIDTH / width, MOST_HEIGHT / height);
    return stage >= LEAST_WINDOW && this.camera.exceeds(stage);
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
