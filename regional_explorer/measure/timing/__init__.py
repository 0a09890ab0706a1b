"""Interleaved rounds of timed calls: clocks, samples, and the timings and warnings made of them."""
