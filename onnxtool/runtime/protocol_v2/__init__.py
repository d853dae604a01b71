"""The Open Inference Protocol V2: tensors as JSON and bytes, and a client."""
