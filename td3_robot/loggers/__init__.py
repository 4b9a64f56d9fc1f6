"""Records of a run: CSV, TensorBoard, MLflow, pictures."""
