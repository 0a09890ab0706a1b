"""The code that Inductor generates for a region: kernels, their times, stages, bottlenecks, and code for GPUs."""
