"""The one rule on how far two tensors may be apart, and its excuses, each with a bound."""
