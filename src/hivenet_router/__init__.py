"""One HTTP address in front of many inference engines, wherever they run."""
