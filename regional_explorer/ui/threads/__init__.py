"""Background work of a panel: worker thread, work on the main thread, debouncing, heartbeat, progress."""
