"""Trainings in several processes: one for each of several seeds."""
