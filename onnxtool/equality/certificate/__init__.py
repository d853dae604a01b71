"""Equality of models as real functions, decided in exact arithmetic over a finite field."""
