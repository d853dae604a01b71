"""Floor 3: is it a sound model, and are two models equal?"""
