"""Old import paths and names of this package, see `td3_robot.utils.legacy`."""

from td3_robot.utils.legacy import register_renames

MODULES = {  # old module -> new module
    "envs.controllers.teachers": "envs.controllers.experts",
    "envs.options": "envs.config.env_options",
    "envs.urdf": "envs.robots.urdf",
}
NAMES = {  # new module -> {old name: new name}
    "envs": {"of_config": "make_from_config"},
    "envs.controllers.experts": {"make_teacher": "make_expert"},
    "envs.collision": {
        "known_collision": "find_collision_model",
        "nearest": "compute_nearest",
        "touching": "find_contact_points",
    },
    "envs.gymnasium_ids": {"id_of": "make_env_id"},
    "envs.planning.contact_check": {"ROOM": "MARGIN", "free": "is_free"},
    "envs.simulation.kinematic": {"bound_for": "predict_half_period_state"},
    "envs.tasks.layout": {"transposed": "multiply_transpose"},
    "envs.tasks.registry": {"task_names": "list_tasks"},
    "envs.tasks.shapes": {
        "cube_shape": "make_cube_shape",
        "goal_shapes": "make_goal_shapes",
        "obstacle_shapes": "make_obstacle_shapes",
        "pose": "make_pose",
        "pose_shapes": "make_pose_shapes",
    },
}

register_renames(MODULES, NAMES)
