"""Passes that join several operators into one standard operator."""
