"""The only place where drivers, clocks, threads and event loops are touched."""
