"""The torture bench: what must hold when processes die, bits flip, disks fill and files lie.

`python -m pytest benchmarks/torture` runs it; docs/reliability.md has its table. Each module is
one part, or what several parts share.
"""
