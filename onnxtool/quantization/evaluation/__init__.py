"""How good a candidate is: metrics on labelled data, and fidelity to the float model without labels."""
