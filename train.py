"""Train a policy: `python train.py --help`."""

from td3_robot.commands.main import run_command

if __name__ == "__main__":
    run_command("train")
