"""The copy bandwidth of a device, which profile and roofline compare bytes with: copies of one large tensor."""

from __future__ import annotations

import functools

import numpy as np
import torch

from regional_explorer.errors.texts import count
from regional_explorer.measure.timing.clock import CpuClock, clock_for
from regional_explorer.record.profile import Bandwidth
from regional_explorer.record.statistics import bootstrap_interval, median_and_iqr

COPIED_BYTES = 128 << 20
"""The bytes that one copy reads, and writes: more than caches hold."""

COPIES = 15
_WARM_UP_COPIES = 2


def copy_bandwidth(device: str) -> Bandwidth:
    """Return how many bytes ``device`` moves in a second in ``dst.copy_(src)``, counting reads and writes.

    ``dst`` is a new tensor each time, as the results of ops are: on a CPU, writing newly allocated memory takes longer
    than writing memory in use. Measured once per process, device and number of threads: the median of ``COPIES``
    copies of ``COPIED_BYTES`` each.
    """
    return _measured_bandwidth(device.partition(" ")[0], torch.get_num_threads())


@functools.cache
def _measured_bandwidth(device: str, threads: int) -> Bandwidth:
    clock = clock_for(device)
    source = torch.ones(COPIED_BYTES, dtype=torch.uint8, device=device)
    marks = []
    for _ in range(_WARM_UP_COPIES + COPIES):
        target = torch.empty_like(source)
        clock.flush()
        begin = clock.mark()
        target.copy_(source)
        marks.append((begin, clock.mark()))
        del target
    clock.synchronize()
    moved_bytes = 2 * COPIED_BYTES
    rates = [moved_bytes / max(clock.seconds(begin, end), 1e-9) for begin, end in marks[_WARM_UP_COPIES:]]
    median, _ = median_and_iqr(rates)
    low, high = bootstrap_interval(np.array(rates), 0.99, 0) or (median, median)
    host_note = f", {count(threads, 'thread')}" if isinstance(clock, CpuClock) else ""
    how = f"median of {COPIES} copies of {COPIED_BYTES >> 20} MiB to fresh memory, reads and writes counted{host_note}"
    return Bandwidth(median, low, high, how)
