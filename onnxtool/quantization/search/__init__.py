"""The search for the fastest recipe within the accuracy budget."""
