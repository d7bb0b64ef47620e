"""The torture bench: what must hold when processes die, bits flip, disks fill and files lie.

`python -m benchmarks.torture` runs it; docs/reliability.md has its table. Each module here is one
part, or what several parts share.
"""
