"""A robot for other programs: its description, and a simulated arm to drive."""
