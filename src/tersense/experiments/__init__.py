"""The tables of the paper, plots and benchmarks."""
