"""Is a model sound? Are two models equal? Which one is faster?"""
