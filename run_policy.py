"""Drive an arm with an exported policy: `python run_policy.py --help`."""

from td3_robot.commands.main import run_command

if __name__ == "__main__":
    run_command("run")
