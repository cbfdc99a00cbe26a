"""Solvers for large linear and convex problems."""
