"""Options of environments, and YAML files of values."""
