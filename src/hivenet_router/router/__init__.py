"""The rooms a request walks through; `walk.py` shows the whole way."""
