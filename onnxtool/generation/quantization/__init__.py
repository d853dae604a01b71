"""Language models in fewer bits, within a budget of perplexity."""
