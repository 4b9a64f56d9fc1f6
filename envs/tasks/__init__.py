"""One file per task. A task knows goals, observations, rewards and success, all as pure
functions.
"""
