"""From JAX (Flax, Equinox, plain functions) to ONNX."""
