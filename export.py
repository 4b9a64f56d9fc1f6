"""Write a policy as an ONNX graph, for a robot: `python export.py --help`."""

from td3_robot.commands.main import run_command

if __name__ == "__main__":
    run_command("export")
