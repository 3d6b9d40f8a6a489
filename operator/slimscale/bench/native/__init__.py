"""Throughput measured on this machine, with the native pool of images/nativepool under real quotas.

No interpreter lock is in the way there, the task times are those asked for, and the CPU quota is
the kernel's. `python -m slimscale.bench.native` lists the commands.
"""
