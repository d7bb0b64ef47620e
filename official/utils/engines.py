"""The engines that run functions in place of processes of this machine, by their names.

An engine is a module in `official.utils`, and one of the same name in `tfrecords_tools.writing`,
which also shuffles records. A module has a class `Runner(options, setup, folder)`, whose instances
are used in a `with` block:

  options: options of the engine, as on command lines; a wrong one raises UserError.
  setup: is called once in each worker.
  folder: a folder that all workers reach, which the runner may create.
"""

import contextlib
import dataclasses
import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from official.utils import paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_ROOT = paths.path(__file__).parents[2]


class Kind(NamedTuple):
    """What users need to know of an engine.

    Attributes:
      title: its name in sentences.
      package: the name that it is imported with.
      extra: the extra of the distribution that has it, which `requirements-EXTRA.txt` pins.
      options: an example of options.
    """

    title: str
    package: str
    extra: str
    options: str


KINDS = {
    "beam": Kind(
        "Apache Beam",
        "apache_beam",
        "beam",
        "--direct_num_workers=2 --direct_running_mode=multi_processing",
    ),
    "ray": Kind("Ray", "ray", "ray", "--num_cpus=2 --task_timeout=3600"),
}


@dataclasses.dataclass(frozen=True)
class Engine:
    """An engine with its options.

    Attributes:
      name: one of `KINDS`.
      options: options of the engine, as on command lines.
    """

    name: str
    options: tuple[str, ...] = ()

    def runner(self, package: str, setup: Callable[[], None], folder: AnyPath) -> Any:
        """Returns the runner of the engine's module in a package; see the top of this module.

        Raises:
          UserError: the engine is not installed, or an option is wrong.
        """
        kind = KINDS[self.name]
        try:
            module = importlib.import_module(f"{package}.{self.name}")
        except ModuleNotFoundError as error:
            raise UserError(
                f"--runner={self.name}: {error}: install it with "
                f"pip install -r requirements-{kind.extra}.txt"
            ) from None
        return module.Runner(self.options, setup, folder)


@contextlib.contextmanager
def importable() -> Iterator[None]:
    """Lets processes that an engine starts on this machine import this package."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_ROOT), before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
