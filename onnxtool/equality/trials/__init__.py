"""The inputs on which two models are compared, and what of a graph suggests them."""
