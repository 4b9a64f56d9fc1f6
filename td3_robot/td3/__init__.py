"""The agent: one update rule, its losses, its value heads, saving and loading."""
