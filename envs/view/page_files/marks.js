// What helps to see where things are: a line from each goal down to the table, the way that the tool has gone, and
// where arms touch something.
import * as THREE from "three";
import { Line2 } from "three/addons/lines/Line2.js";
import { LineGeometry } from "three/addons/lines/LineGeometry.js";
import { LineMaterial } from "three/addons/lines/LineMaterial.js";

const GOAL = 0xb026d9;
const WAY = 0x0b7285;
const TOUCH = 0xff0000;
const UP = 0.001; // [m] over the table: no flicker

export class Marks {
  constructor(scene) {
    this.scene = scene;
    this.drops = [];
    this.ways = [];
    this.touches = [];
    this.ball = new THREE.SphereGeometry(0.016, 16, 12);
    this.through = new THREE.MeshBasicMaterial({ color: TOUCH, depthTest: false, transparent: true, fog: false });
    this.seen = new THREE.MeshBasicMaterial({ color: GOAL, transparent: true, opacity: 0.55 });
    this.line = new LineMaterial({ color: WAY, linewidth: 3, transparent: true, opacity: 0.75 });
  }

  /** Show these: drops, positions of goals; ways, lists of positions; touches, positions. */
  show({ drops, ways, touches }) {
    while (this.touches.length < touches.length) this.touches.push(this.touch());
    this.touches.forEach((ball, i) => {
      ball.visible = i < touches.length;
      if (ball.visible) ball.position.set(...touches[i]);
    });
    while (this.drops.length < drops.length) this.drops.push(this.drop());
    this.drops.forEach((drop, i) => {
      drop.visible = i < drops.length;
      if (!drop.visible) return;
      const [x, y, z] = drops[i];
      drop.position.set(x, y, UP);
      drop.children[0].scale.z = Math.max(z - UP, UP);
    });
    for (const way of this.ways) {
      way.geometry.dispose();
      this.scene.remove(way);
    }
    this.ways = ways.filter((way) => way.length > 1).map((way) => {
      const line = new Line2(new LineGeometry().setPositions(way.flat()), this.line);
      this.scene.add(line);
      return line;
    });
  }

  /** A ball that is seen through all else. */
  touch() {
    const ball = Object.assign(new THREE.Mesh(this.ball, this.through), { renderOrder: 9 });
    this.scene.add(ball);
    return ball;
  }

  /** A line a metre high on a ring on the table. */
  drop() {
    const stick = new THREE.CylinderGeometry(0.0022, 0.0022, 1, 8).translate(0, 0.5, 0).rotateX(Math.PI / 2);
    const drop = new THREE.Group();
    drop.add(new THREE.Mesh(stick, this.seen), new THREE.Mesh(new THREE.RingGeometry(0.018, 0.026, 32), this.seen));
    this.scene.add(drop);
    return drop;
  }
}
