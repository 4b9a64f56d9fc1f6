// What is ours in Swift's page: how the scene looks, and what in it can be moved by hand. main.js calls `viewMade` with
// what it draws with, `extraMessage` with messages that are not Swift's, and `takeEvents` for what it is to answer.
import { Gizmo } from "./gizmo.js";

const NO_WEBGL = "This browser draws no 3D graphics (WebGL). Switch its hardware acceleration on, or take another one.";
const BACKDROP = 0xe9eef2;
let gizmo = null;

if (!document.createElement("canvas").getContext("webgl2")) {
  document.body.replaceChildren(Object.assign(document.createElement("p"), { className: "sorry", textContent: NO_WEBGL }));
  fetch("without-webgl"); // so that the terminal says so, too
}

window.viewMade = (view) => {
  const { scene, camera, ground } = view;
  window.swiftView = view;
  window.swiftScene = scene;
  scene.background.set(BACKDROP);
  scene.fog.color.set(BACKDROP);
  Object.assign(scene.fog, { near: 2.5, far: 7 });
  ground.material.color.set(0xbac4cd);
  camera.fov = 35; // Swift's 70 degrees are wide
  camera.updateProjectionMatrix();
};

window.extraMessage = (name, data) => {
  if (name !== "handles") return false;
  gizmo ??= window.swiftGizmo = new Gizmo(window.swiftView);
  gizmo.place(data);
  return true;
};

window.takeEvents = () => {
  if (!gizmo?.moved) return {};
  const { moved } = gizmo;
  gizmo.moved = null;
  return { moved };
};
