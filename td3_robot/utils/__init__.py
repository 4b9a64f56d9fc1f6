"""The machine and its files: atomic writes, JSON, YAML, seeds, memory, signals, progress."""
