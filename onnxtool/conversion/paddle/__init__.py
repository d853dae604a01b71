"""From PaddlePaddle's inference programs to ONNX."""
