"""The simulator: processes, disks, clocks and a network in one event loop."""
