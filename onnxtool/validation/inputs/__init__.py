"""The inputs on which two models are held against each other: which are tried, which parts of a graph they reach."""
