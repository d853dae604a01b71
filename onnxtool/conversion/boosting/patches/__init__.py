"""Corrections of the exporters of boosted trees."""
