"""How arms and what they touch move: one file an engine."""
