"""Child processes: the compile pool, and building the C++ toolchain's caches ahead of time."""
