"""Training: the loop, its steps, optimizers and schedules. `train` runs all of it."""

from official.training.run import train
from official.training.trainer import Stopped

__all__ = ["Stopped", "train"]
