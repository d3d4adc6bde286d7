"""The pure core: integers in, values out. No clock, randomness, floats, input/output or async in here."""
