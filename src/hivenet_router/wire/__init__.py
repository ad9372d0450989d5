"""What other programs send us and what we send them, as pure functions over bytes.

Nothing here opens a socket, reads a clock or draws a random number; each module is one wire format, and nobody else
spells that format out again.
"""
