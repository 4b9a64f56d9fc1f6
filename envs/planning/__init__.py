"""Plan in joint space: solve goals, find paths, draw feasible scenes, check for contact."""
