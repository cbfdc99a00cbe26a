"""Speed, as ratios measured side by side in one run."""

from tersense.experiments.bench.methods import bench_methods
from tersense.experiments.bench.reconstruction import bench_reconstruction
from tersense.experiments.bench.sensing import bench_sensing
from tersense.experiments.bench.training import bench_training

__all__ = ["bench_methods", "bench_reconstruction", "bench_sensing", "bench_training"]
