"""Sources of batches: explored environments, a file, or both; action noise."""
