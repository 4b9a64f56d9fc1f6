"""Simulation of arms and of what they touch: one file for each engine."""
