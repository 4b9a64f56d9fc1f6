"""Capsules around the shapes of a robot's model, for its files."""
