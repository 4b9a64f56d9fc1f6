"""Simulation engines by name."""

from envs.config.env_options import MUJOCO
from envs.robots import Robot
from envs.simulation.bodies import PhysicsSpec
from envs.simulation.engine import OBJECT, Engine
from envs.simulation.variation import Variation
from td3_robot.errors import ConfigError, missing_package

_OLDEST = (3, 8)
_BEYOND = (5, 0)


def make_engine(
    name: str,
    robot: Robot,
    dt: float,
    cube: float | None,
    variation: Variation | None = None,
    cubes: tuple[str, ...] = (OBJECT,),
    needs: PhysicsSpec | None = None,
) -> Engine | None:
    """Make the engine of a name, for one robot; None for the kinematic one, which needs no robot.

    Args:
        name: one of `envs.config.env_options.ENGINES`.
        dt: control period [s].
        cube: side of the cubes that are around [m]; None for none.
        variation: how the physics of episodes vary.
        cubes: names of those that are around in scenes.
        needs: what the task brings into contact physics; None for nothing.

    Raises:
        ConfigError: the engine is not installed, in a version that is known to work, or not for
            this robot.
    """
    if name != MUJOCO:
        return None
    need_mujoco()
    from envs.simulation.mujoco import MujocoEngine  # here: it is an extra

    return MujocoEngine(robot, dt, cube, variation=variation, cubes=cubes, needs=needs)


def need_mujoco() -> None:
    """Check that MuJoCo is installed.

    Raises:
        ConfigError: it is not, or its version is known not to work.
    """
    install = "pip install 'td3-robot[mujoco]'"
    try:
        import mujoco
    except ImportError:
        raise missing_package("engine mujoco", "mujoco") from None
    version = tuple(int(part) for part in mujoco.__version__.split(".")[:2])
    if not _OLDEST <= version < _BEYOND:
        wanted = f"{_OLDEST[0]}.{_OLDEST[1]} or newer, below {_BEYOND[0]}"
        raise ConfigError(
            f"engine mujoco needs MuJoCo {wanted}, and {mujoco.__version__} is installed: {install}"
        )
