"""Language models: from a Hugging Face folder or a GGUF file to a bundle that generates, proven and measured."""
