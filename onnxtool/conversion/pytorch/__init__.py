"""PyTorch models: state_dicts with a factory, exported programs, TorchScript, Hugging Face folders."""
