"""Training: `train`, the loop, its steps, optimizers and schedules."""

from official.training.run import train
from official.training.stop_signal import Stopped

__all__ = ["Stopped", "train"]
