"""The machine and its files: atomic writes, JSON, YAML, seeds, devices, memory, signals."""
