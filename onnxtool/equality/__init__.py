"""Whether two models are the same function: the rule, the inputs that are tried, the search, layer by layer."""
