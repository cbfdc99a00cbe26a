"""From a trained camera to what hardware is made of."""
