"""Pushing of a cube against the same arithmetic, written matrix by matrix."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from envs.kinematics import fkine
from envs.robots import make_robot
from envs.simulation import grasp

COUNT = 2000


def push_each(hand, T_before: Tensor, T_after: Tensor, cube: Tensor, gap: Tensor) -> Tensor:
    """Push with a batch first: boxes by matrix products, ways out by norms of columns."""
    share = torch.linspace(0.0, 1.0, grasp.SUBSTEPS + 1)
    boxes = grasp._make_boxes(hand, gap).permute(2, 0, 1)  # (B, 3, 6)
    for each in share[1:]:
        T = T_before + each * (T_after - T_before)
        sides = grasp.compute_hand_axes(hand, T)
        sides = torch.cat((sides, -sides), 2)  # (B, 3, 6)
        reach = torch.linalg.vector_norm(sides[:, :2], dim=1, keepdim=True).clamp_min(1e-6)
        ways = (sides[:, :2] / reach).mT  # (B, 6, 2)
        depth = boxes + T[:, None, :3, 3] @ sides - cube[:, None] @ sides
        distance, side = (depth / reach).min(2)
        out = ways.gather(1, side[:, :, None].expand(-1, -1, 2))
        if hand.slips:
            off = (hand.half - torch.stack((depth[..., [0, 3]], depth[..., [1, 4]]), 2)).amax(3)
            side = torch.stack((depth[..., [0, 3]], depth[..., [1, 4]]), 2).argmin(3)
            off = off.clamp(0.0, hand.half)
            faces = torch.stack((ways[:, [0, 3]], ways[:, [1, 4]]), 1)  # (B, axis, side, 2)
            for box in range(3):
                of_box = [faces[torch.arange(COUNT), axis, side[:, box, axis]] for axis in (0, 1)]
                length = torch.linalg.vector_norm(off[:, box], dim=1)
                away = sum(off[:, box, axis, None] * of_box[axis] for axis in (0, 1))
                beside = (off[:, box] > 0).all(1)
                out[beside, box] = (away / length.clamp_min(1e-9)[:, None])[beside]
                distance[beside, box] = (hand.half - length).clamp_min(0.0)[beside]
        distance = torch.where(depth.amin(2) > 0.0, distance, 0.0)
        moved = cube[:, :2] + (out * distance[:, :, None]).sum(1)
        cube = torch.cat((moved, cube[:, 2:]), 1)
    return cube


@pytest.mark.parametrize("slips", [False, True])
@pytest.mark.parametrize("name", ["panda", "ur5e"])
def test_the_batched_arithmetic_pushes_as_matrices_do(name, slips):
    robot = make_robot(name)
    hand = replace(grasp.compile_hand(robot.gripper, 0.04), slips=slips)
    generator = torch.Generator().manual_seed(7)

    def draw(most: float, *shape: int) -> Tensor:
        return most * (2.0 * torch.rand(COUNT, *shape, generator=generator) - 1.0)

    q = torch.tensor(robot.home, dtype=torch.float32) + draw(0.3, robot.n)
    T_before, T_after = (fkine(robot.chain, each) for each in (q, q + draw(0.05, robot.n)))
    cube = T_before[:, :3, 3] + draw(0.06, 3)
    gap = draw(0.04) + 0.04
    pushed = grasp.push_cube(hand, T_before, T_after, cube, gap)
    assert (pushed != cube).any(1).float().mean() > 0.2
    assert_close(pushed, push_each(hand, T_before, T_after, cube, gap), rtol=0, atol=1e-6)
