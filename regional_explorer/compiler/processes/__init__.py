"""Child processes: the compile pool, and the process that builds the C++ toolchain's caches ahead of time."""
