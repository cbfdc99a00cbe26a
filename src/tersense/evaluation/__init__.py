"""How good a reconstruction is."""
