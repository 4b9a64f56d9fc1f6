"""Where figures go: CSV, TensorBoard, MLflow, pictures."""
