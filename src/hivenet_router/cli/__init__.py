"""The programs' entries: read what the operator wrote, build the world, run it, end with the right exit code."""
