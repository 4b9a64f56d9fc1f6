"""The scripts' command lines and what the terminal shows."""
