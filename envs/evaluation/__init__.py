"""What an evaluation measures, and how it is shown."""
