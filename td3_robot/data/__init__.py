"""Where batches come from: environments explored, a file, or both; action noise."""
