// When a picture is drawn, and how fine: none where nothing has changed, none until the last one is done, and where
// software draws, not a GPU, coarse ones while something moves and a fine one once all is at rest.

const SOFTWARE = /swiftshader|llvmpipe|softpipe|basic render/i;
const COARSE = 0.5; // of the pixels on each side; without shadows, too
const REST = 400; // [ms] without a change
const SAME = 1e-4; // [m] and parts of quaternions: a hand that only trembles so much does not move
const TEXT = ["sim_time", "update_element", "shape_poses"]; // messages that change no picture, or say by how much

/** Whether software draws what is drawn with this WebGL. */
export function drawnBySoftware(gl) {
  const names = gl.getExtension("WEBGL_debug_renderer_info");
  return SOFTWARE.test(gl.getParameter(names ? names.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
}

export class Pace {
  constructor({ scene, renderer, controls, lights }, software) {
    Object.assign(this, { renderer, lights, software, gl: renderer.getContext() });
    this.poses = new Map(); // of each object, all its numbers, as they were drawn
    this.fine = this.dirty = true;
    this.changed = 0; // when, last [ms]
    this.done = null; // what tells that the last picture is
    controls.addEventListener("change", () => this.change());
    window.addEventListener("resize", () => this.change());
    scene.onAfterRender = () => this.mark();
  }

  /** Another picture is wanted. */
  change() {
    this.dirty = true;
    this.changed = performance.now();
  }

  /** What Python says may change it. */
  hear(name, data) {
    let moved = !TEXT.includes(name);
    for (const [object, parts] of name === "shape_poses" ? data : []) {
      const now = parts.flatMap(({ t, q }) => [...t, ...q]);
      const drawn = this.poses.get(object);
      if (drawn?.length === now.length && now.every((x, i) => Math.abs(x - drawn[i]) < SAME)) continue;
      this.poses.set(object, now);
      moved = true;
    }
    if (moved) this.change();
  }

  /** Whether to draw now. */
  due() {
    const rests = performance.now() - this.changed > REST;
    if (!this.finished || !(this.dirty || (rests && !this.fine))) return false;
    if (this.software && this.fine !== rests) this.refine(rests);
    this.dirty = false;
    return true;
  }

  mark() {
    this.gl.deleteSync(this.done);
    this.done = this.gl.fenceSync(this.gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
  }

  /** Whether the last picture is: who asks for another before that waits for it, and hears nothing meanwhile. */
  get finished() {
    return !this.done || this.gl.getSyncParameter(this.done, this.gl.SYNC_STATUS) !== this.gl.UNSIGNALED;
  }

  refine(fine) {
    this.fine = fine;
    this.renderer.setPixelRatio((fine ? 1 : COARSE) * window.devicePixelRatio);
    for (const light of this.lights) if (light.isDirectionalLight) light.castShadow = fine;
  }
}
