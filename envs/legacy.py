"""Old import paths and names of this package, see `td3_robot.legacy`."""

from td3_robot.legacy import register_renames

MODULES = {  # old module -> new module
    "envs.options": "envs.config.env_options",
    "envs.urdf": "envs.robots.urdf",
}
NAMES: dict[str, dict[str, str]] = {  # new module -> {old name: new name}
}

register_renames(MODULES, NAMES)
