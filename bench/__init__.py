"""What does the way through a router cost? `python -m bench` measures it on this machine.

The method, and the figures of one machine, are in docs/performance.md.
"""
