"""Search over the options of trainings, whose trials are ordinary runs; Ray schedules them."""
