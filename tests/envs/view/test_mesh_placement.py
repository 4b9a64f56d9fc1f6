"""The page draws a mesh where the reader in Python has it."""

import numpy as np

from envs.collision.fitting.shapes import make_mesh, select_shapes
from envs.robots import make_robot
from envs.view.swift import SwiftViewer
from tests.mesh_files import write_arm, write_dae

# the corners in the world of what the Collada loader made, which alone lies in groups
CORNERS = """() => {
  const found = [];
  window.swiftScene.updateMatrixWorld(true);
  window.swiftScene.traverse((one) => {
    if (!one.isMesh || one.parent === window.swiftScene) return;
    const points = one.geometry.getAttribute("position");
    for (let i = 0; i < points.count; i++) {
      const p = one.position.clone().fromBufferAttribute(points, i).applyMatrix4(one.matrixWorld);
      found.push([p.x, p.y, p.z]);
    }
  });
  return found;
}"""


def test_fit_and_view_place_a_collada_mesh_alike(page, tmp_path):
    """The page's own loader against the reader in Python, of a unit, an axis and a scale."""
    write_dae(tmp_path, 0.001, "Y_UP", "<translate>10 20 30</translate>")
    robot = make_robot(str(write_arm(tmp_path, "wing.dae", 'scale="2 1 0.5"')))
    low = [0.02, 0.02, 0.115]  # (10, 20, 30) mm times the scale, and the origin's 0.1
    high = [0.62, 0.12, 0.14]
    [mesh] = [s for s in select_shapes(robot.rtb.links[-1]) if s.stype == "mesh"]
    np.testing.assert_allclose(make_mesh(mesh).bounds, [low, high], atol=1e-9)
    with SwiftViewer(robot, open_browser=False, realtime=False) as viewer:
        page.goto(viewer.url)
        viewer.show(robot.home)
        corners = page.evaluate(CORNERS)
    T = np.linalg.inv(robot.rtb.fkine(robot.home, end="fore").A)
    there = np.asarray(corners) @ T[:3, :3].T + T[:3, 3]
    np.testing.assert_allclose([there.min(0), there.max(0)], [low, high], atol=1e-6)
