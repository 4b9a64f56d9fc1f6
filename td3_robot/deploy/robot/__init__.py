"""The robot: kinematics, limits, capsules and obstacles around it."""
