"""What is everything called? Codes, headers, paths, protocol IDs and metric names, each written down exactly once.

Invariant: no logic and no imports from the rest of the package, so that every layer may import these names.
What the names mean is decided elsewhere.
"""
