// What can be put elsewhere by hand: a ball to drag in the plane of the picture, arrows to drag along an axis, and
// rings to turn about one, where the thing has an orientation. The scene orbits only beside them.
import * as THREE from "three";

const COLOURS = [0xd6455d, 0x2f9e4f, 0x3d6fd6]; // x, y, z
const LENGTH = 92; // [px] of an arrow
const GRASP = 16; // [px] radius in which a ball is taken hold of
const CORE = 0.13; // of an arrow: so near to its middle it is the ball, though an arrow that points at us lies before it
const LIT = 0xffb000;

const onTop = (color, opacity = 1) =>
  new THREE.MeshBasicMaterial({ color, opacity, depthTest: false, depthWrite: false, transparent: true, fog: false });
const unseen = new THREE.MeshBasicMaterial({ visible: false });
const along = [new THREE.Vector3(1, 0, 0), new THREE.Vector3(0, 1, 0), new THREE.Vector3(0, 0, 1)];
const fromZ = (axis) => new THREE.Quaternion().setFromUnitVectors(along[2], along[axis]);

/** Arrows one metre long, and rings around them: [group, what can be hit of it]. */
function tools(parts, kind) {
  const group = new THREE.Group();
  const hit = [];
  for (let axis = 0; axis < 3; axis++) {
    const material = onTop(COLOURS[axis], 0.9);
    const turned = new THREE.Group();
    turned.quaternion.copy(fromZ(axis));
    for (const [geometry, place, seen] of parts) {
      const mesh = new THREE.Mesh(geometry, seen ? material : unseen);
      mesh.position.z = place;
      mesh.renderOrder = 10;
      if (!seen) hit.push(Object.assign(mesh, { tool: { kind, axis, material } }));
      turned.add(mesh);
    }
    group.add(turned);
  }
  return [group, hit];
}

const upright = (geometry) => geometry.rotateX(Math.PI / 2); // three.js's cylinders stand along y

export class Gizmo {
  constructor({ scene, camera, renderer, controls, pace }) {
    Object.assign(this, { scene, camera, controls, pace, canvas: renderer.domElement });
    this.handles = new Map(); // by name: { ball, t, q, size, turns }
    this.chosen = null; // name
    this.drag = this.lit = null;
    this.moved = null; // what the page has to tell: { name, t, q }
    const shaft = [upright(new THREE.CylinderGeometry(0.018, 0.018, 0.75, 8)), 0.45, true];
    const tip = [upright(new THREE.ConeGeometry(0.07, 0.2, 16)), 0.9, true];
    const grip = [upright(new THREE.CylinderGeometry(0.12, 0.12, 0.85, 6)), 0.62, false];
    const ring = [new THREE.TorusGeometry(0.72, 0.014, 8, 64), 0, true];
    const ringGrip = [new THREE.TorusGeometry(0.72, 0.08, 6, 32), 0, false];
    const [arrows, arrowHits] = tools([shaft, tip, grip], "axis");
    const [rings, ringHits] = tools([ring, ringGrip], "turn");
    const core = Object.assign(new THREE.Mesh(new THREE.SphereGeometry(CORE), unseen), { tool: { kind: "free" } });
    Object.assign(this, { arrows, rings, arrowHits, ringHits, core });
    this.frame = new THREE.Group().add(arrows, rings, core);
    this.frame.visible = false;
    scene.add(this.frame);
    this.ray = new THREE.Raycaster();
    const before = scene.onBeforeRender;
    scene.onBeforeRender = (...args) => (before(...args), this.fit());
    this.canvas.addEventListener("pointerdown", (event) => this.take(event), { capture: true });
    this.canvas.addEventListener("pointermove", (event) => (this.drag ? this.pull(event) : this.point(event)));
    for (const end of ["pointerup", "pointercancel"]) this.canvas.addEventListener(end, () => this.release());
  }

  /** Take what Python says there is; what is being dragged stays where the pointer has it. */
  place(handles) {
    for (const name of this.handles.keys())
      if (!handles.some((handle) => handle.name === name)) {
        this.scene.remove(this.handles.get(name).ball);
        this.handles.delete(name);
        if (this.drag?.name === name) this.release();
        if (this.chosen === name) this.chosen = null;
      }
    for (const { name, t, q, size, turns } of handles) {
      if (!this.handles.has(name)) {
        const ball = new THREE.Mesh(new THREE.SphereGeometry(1, 12, 8), unseen);
        ball.tool = { kind: "free", name };
        this.scene.add(ball);
        this.handles.set(name, { ball });
      }
      Object.assign(this.handles.get(name), { t, q, size, turns });
      if (this.drag?.name !== name) this.settle(name);
    }
    this.chosen ??= handles[0]?.name ?? null;
  }

  /** To where Python has it: a pointer may have been where nothing can be. */
  settle(name) {
    const { ball, t, q } = this.handles.get(name);
    ball.position.set(...t);
    ball.quaternion.set(...q);
  }

  /** Keep the tools where the chosen thing is, as large as they are on any screen. */
  fit() {
    const handle = this.handles.get(this.chosen);
    this.frame.visible = Boolean(handle);
    for (const { ball, size } of this.handles.values())
      ball.scale.setScalar(Math.max(size, GRASP * this.metresPerPixel(ball.position)));
    if (!handle) return;
    this.frame.position.copy(handle.ball.position);
    this.frame.scale.setScalar(LENGTH * this.metresPerPixel(handle.ball.position));
    this.rings.quaternion.copy(handle.ball.quaternion);
    this.rings.visible = handle.turns;
    this.frame.updateMatrixWorld();
  }

  metresPerPixel(position) {
    const depth = position.distanceTo(this.camera.position);
    return (2 * depth * Math.tan(THREE.MathUtils.degToRad(this.camera.fov) / 2)) / this.canvas.clientHeight;
  }

  aim(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = (2 * (event.clientX - box.left)) / box.width - 1;
    const y = 1 - (2 * (event.clientY - box.top)) / box.height;
    this.camera.updateMatrixWorld();
    this.ray.setFromCamera(new THREE.Vector2(x, y), this.camera);
  }

  /** The tool under the pointer: the middle of what is chosen, then an arrow before a ring before a ball. */
  under(event) {
    this.aim(event);
    this.fit();
    const balls = [...this.handles.values()].map(({ ball }) => ball);
    for (const ball of balls) ball.updateMatrixWorld();
    const shown = this.frame.visible ? [[this.core], this.arrowHits, this.rings.visible ? this.ringHits : []] : [];
    for (const group of [...shown, balls]) {
      const [hit] = this.ray.intersectObjects(group, false);
      if (hit) return hit.object.tool;
    }
    return null;
  }

  point(event) {
    if (event.buttons) return; // the scene is being turned
    const tool = this.under(event);
    this.light(tool);
    this.canvas.style.cursor = tool ? "grab" : "";
  }

  light(tool) {
    const lit = tool?.material ? tool : null;
    if (lit === this.lit) return;
    this.lit?.material.color.set(COLOURS[this.lit.axis]);
    lit?.material.color.set(LIT);
    this.lit = lit;
    this.pace.change();
  }

  take(event) {
    if (event.button !== 0 || !this.handles.size) return;
    const tool = this.under(event);
    if (!tool) return;
    event.stopImmediatePropagation(); // not for the orbit
    this.controls.enabled = false;
    this.canvas.setPointerCapture?.(event.pointerId);
    this.chosen = tool.name ?? this.chosen;
    this.fit();
    this.light(tool);
    const { ball } = this.handles.get(this.chosen);
    const view = this.camera.getWorldDirection(new THREE.Vector3());
    const normal = view.clone();
    const axis = tool.kind === "free" ? null : along[tool.axis].clone();
    if (tool.kind === "turn") normal.copy(axis.applyQuaternion(ball.quaternion));
    if (tool.kind === "axis") normal.sub(axis.clone().multiplyScalar(view.dot(axis))); // faces us and holds the axis
    const plane = new THREE.Plane().setFromNormalAndCoplanarPoint(normal.normalize(), ball.position);
    const start = { position: ball.position.clone(), quaternion: ball.quaternion.clone() };
    this.drag = { name: this.chosen, kind: tool.kind, axis, plane, start };
    this.drag.grasp = this.hit();
    if (!this.drag.grasp) this.release(); // seen edge-on
    this.canvas.style.cursor = "grabbing";
  }

  /** Where the pointer is in the plane of the drag, from the middle of what is dragged. */
  hit() {
    const point = this.ray.ray.intersectPlane(this.drag.plane, new THREE.Vector3());
    return point?.sub(this.drag.start.position) ?? null;
  }

  pull(event) {
    this.aim(event);
    const { name, kind, axis, start, grasp } = this.drag;
    const now = this.hit();
    if (!now) return;
    const { ball } = this.handles.get(name);
    if (kind === "turn") {
      const angle = Math.atan2(grasp.clone().cross(now).dot(axis), grasp.dot(now));
      ball.quaternion.copy(start.quaternion).premultiply(new THREE.Quaternion().setFromAxisAngle(axis, angle));
    } else {
      const way = now.sub(grasp);
      if (kind === "axis") way.projectOnVector(axis);
      ball.position.copy(start.position).add(way);
    }
    this.pace.change();
    this.moved = { name, t: ball.position.toArray(), q: ball.quaternion.toArray() };
  }

  release() {
    if (this.handles.has(this.drag?.name)) this.settle(this.drag.name);
    this.drag = null;
    this.pace.change();
    this.controls.enabled = true;
    this.canvas.style.cursor = "";
  }
}
