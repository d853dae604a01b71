"""What commands return for bundles of language models."""
