"""The loop: its state, callbacks, NaN guard and best checkpoint."""
