// What helps to see where things are: a line from each goal down to the table, the path that the tool has gone, and
// where arms contact something.
import * as THREE from "three";
import { Line2 } from "three/addons/lines/Line2.js";
import { LineGeometry } from "three/addons/lines/LineGeometry.js";
import { LineMaterial } from "three/addons/lines/LineMaterial.js";

const GOAL = 0xb026d9;
const PATH = 0x0b7285;
const CONTACT = 0xff0000;
const UP = 0.001; // [m] over the table: no flicker

export class Marks {
  constructor(scene) {
    this.scene = scene;
    this.drops = [];
    this.paths = [];
    this.contacts = [];
    this.ball = new THREE.SphereGeometry(0.016, 16, 12);
    this.through = new THREE.MeshBasicMaterial({ color: CONTACT, depthTest: false, transparent: true, fog: false });
    this.seen = new THREE.MeshBasicMaterial({ color: GOAL, transparent: true, opacity: 0.55 });
    this.line = new LineMaterial({ color: PATH, linewidth: 3, transparent: true, opacity: 0.75 });
  }

  /** Show these: drops, positions of goals; paths, lists of positions; contacts, positions. */
  show({ drops, paths, contacts }) {
    while (this.contacts.length < contacts.length) this.contacts.push(this.contact());
    this.contacts.forEach((ball, i) => {
      ball.visible = i < contacts.length;
      if (ball.visible) ball.position.set(...contacts[i]);
    });
    while (this.drops.length < drops.length) this.drops.push(this.drop());
    this.drops.forEach((drop, i) => {
      drop.visible = i < drops.length;
      if (!drop.visible) return;
      const [x, y, z] = drops[i];
      drop.position.set(x, y, UP);
      drop.children[0].scale.z = Math.max(z - UP, UP);
    });
    for (const path of this.paths) {
      path.geometry.dispose();
      this.scene.remove(path);
    }
    this.paths = paths.filter((path) => path.length > 1).map((path) => {
      const line = new Line2(new LineGeometry().setPositions(path.flat()), this.line);
      this.scene.add(line);
      return line;
    });
  }

  /** A ball that is seen through all else. */
  contact() {
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
