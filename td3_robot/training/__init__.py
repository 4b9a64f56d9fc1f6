"""The loop: its state, callbacks, evaluations, NaN guard and best checkpoint."""
