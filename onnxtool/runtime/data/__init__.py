"""Calibration and evaluation data: archives, folders, tables and images as a stream of feeds."""
