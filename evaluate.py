"""Measure, watch or record a trained policy: `python evaluate.py --help`."""

from td3_robot.commands.main import run_command

if __name__ == "__main__":
    run_command("evaluate")
