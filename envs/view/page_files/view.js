// What is ours in Swift's page: how the scene looks, and what in it can be moved by hand. main.js calls `viewMade` with
// what it draws with, `heard` with every message, `extraMessage` with those that are not Swift's, `takeEvents` for what it
// is to answer, and `isDue` before it draws.
import * as THREE from "three";
import { Gizmo } from "./gizmo.js";
import { Marks } from "./marks.js";
import { Pace, drawnBySoftware } from "./pace.js";

const NO_WEBGL = "This browser draws no 3D graphics (WebGL). Switch its hardware acceleration on, or take another one.";
const BACKDROP = 0xe9eef2;
let gizmo = null;
let marks = null;
let pace = null;

const gl = document.createElement("canvas").getContext("webgl2");
window.drawnBySoftware = Boolean(gl) && !window.drawFrame && drawnBySoftware(gl); // pictures asked for are always fine
if (!gl) {
  document.body.replaceChildren(Object.assign(document.createElement("p"), { className: "sorry", textContent: NO_WEBGL }));
  fetch("without-webgl"); // so that the terminal says so, too
}

/** A line every 25 cm, as a texture: lines of their own that pass behind the camera are not drawn by all. */
function grid() {
  const canvas = Object.assign(document.createElement("canvas"), { width: 256, height: 256 });
  const draw = canvas.getContext("2d");
  draw.fillStyle = "#fff";
  draw.fillRect(0, 0, 256, 256);
  draw.strokeStyle = "#c3ccd4";
  draw.lineWidth = 5; // half of it is outside
  draw.strokeRect(0, 0, 256, 256);
  const texture = new THREE.CanvasTexture(canvas);
  texture.wrapS = texture.wrapT = THREE.RepeatWrapping;
  texture.repeat.setScalar(40 / 0.25); // of Swift's ground
  texture.anisotropy = 8;
  texture.colorSpace = THREE.SRGBColorSpace;
  return texture;
}

window.viewMade = (view) => {
  const { scene, camera, controls, ground } = view;
  window.swiftView = view;
  pace = view.pace = new Pace(view, window.drawnBySoftware);
  window.swiftScene = scene;
  scene.background.set(BACKDROP);
  scene.fog.color.set(BACKDROP);
  ground.material.color.set(0xbac4cd);
  ground.material.map = grid();
  camera.fov = 35; // Swift's 70 degrees are wide
  camera.updateProjectionMatrix();
  scene.onBeforeRender = () => {
    const depth = camera.position.distanceTo(controls.target); // what is looked at is never in the fog
    Object.assign(scene.fog, { near: Math.max(2.5, 1.2 * depth), far: Math.max(7, 3 * depth) });
    if (camera.far < scene.fog.far) {
      camera.far = 2 * scene.fog.far;
      camera.updateProjectionMatrix();
    }
  };
};

// Swift's page makes what it shows cast no shadow, but for meshes.
window.shapeAdded = (part, shown) =>
  shown.traverse((one) => {
    if (!one.isMesh) return;
    one.castShadow = !(part.opacity < 0.5);
    one.receiveShadow = true;
    for (const material of part.opacity < 1 ? [one.material].flat() : [])
      Object.assign(material, { transparent: true, opacity: part.opacity });
  });

window.heard = (name, data) => pace.hear(name, data);
window.isDue = () => Boolean(window.drawFrame) || pace.due();
THREE.DefaultLoadingManager.onLoad = () => pace?.change(); // textures come late

window.extraMessage = (name, data) => {
  if (name === "handles") {
    gizmo ??= window.swiftGizmo = new Gizmo(window.swiftView);
    gizmo.place(data);
  } else if (name === "marks") {
    marks ??= new Marks(window.swiftScene);
    marks.show(data);
  } else return false;
  return true;
};

window.takeEvents = () => {
  if (!gizmo?.moved) return {};
  const { moved } = gizmo;
  gizmo.moved = null;
  return { moved };
};
