"""What environments are made from: the options of a robot and its task, and files of values."""
