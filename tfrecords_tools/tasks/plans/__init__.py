"""The flags of `build_task_shards` for each kind of task, and the tasks that they plan.

The modules have the names of those with the builders, which have TensorFlow: flags are checked
before it is loaded. A module has `FLAGS`, and what it makes of the values that are given.
"""
