"""What the tensors of a model hold on calibration data, and the ranges derived from it."""
