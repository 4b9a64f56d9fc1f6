"""Run `python -m td3_robot COMMAND`, the same as `td3-robot COMMAND`."""

from td3_robot.commands.main import main

if __name__ == "__main__":
    main()
