"""Variation of the physics between episodes."""

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from td3_robot.errors import ConfigError
from td3_robot.vec_env import draw_uniform

Range = tuple[float, float]
_AS_IT_IS = (1.0, 1.0)


@dataclass(frozen=True)
class Variation:
    """Ranges that each episode draws from uniformly: factors of the files' values, or with a unit.

    Attributes:
        stiffness, damping: of the servos' gains; whoever commands them knows what they are.
        joint_damping: of the joints themselves.
        friction: of all that touches.
        cube_mass: [kg], and cube_side [m]; None: as they are.
        payload: what the hand carries beside a cube and neither servos nor gravity compensation
            know of [kg].

    Raises:
        ConfigError: a range that cannot be right.
    """

    stiffness: Range = _AS_IT_IS
    damping: Range = _AS_IT_IS
    joint_damping: Range = _AS_IT_IS
    friction: Range = _AS_IT_IS
    cube_mass: Range | None = None
    cube_side: Range | None = None
    payload: Range = (0.0, 0.0)

    def __post_init__(self):
        for name, given in self.ranges.items():
            low, high = given
            if not (low <= high < math.inf and (low > 0 or (name == "payload" and low == 0))):
                raise ConfigError(
                    f"{name} must be a range of positive numbers, the lower first, "
                    f"got {list(given)}"
                )

    @property
    def ranges(self) -> dict[str, Range]:
        """The ranges that are set, by name."""
        return {
            item.name: given
            for item in fields(self)
            if (given := getattr(self, item.name)) is not None
        }

    def __bool__(self) -> bool:
        return self != Variation()

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw (count, k) values, a column for each of `ranges`."""
        ranges = list(self.ranges.values())
        low, high = torch.tensor(ranges, device=generator.device, dtype=torch.float32).T
        return low + (high - low) * draw_uniform(generator, count, len(low))
