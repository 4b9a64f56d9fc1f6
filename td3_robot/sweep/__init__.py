"""A search over the options of trainings: what to try, trials as ordinary runs, what came of it.
Ray does the rest.
"""
