"""Applies functions to items in tasks of Ray.

Ray is started for a command alone and ends with it, or is a cluster that the command joins. Its own
log lines stay in its files.
"""

import collections
import contextlib
import functools
import logging
import os
import pickle
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import ray
from absl import flags
from ray import ObjectRef
from ray.exceptions import RayError, RayTaskError

from official.utils import engines, quiet_import
from official.utils.errors import UserError
from official.utils.flag_table import Flag, Values, define
from official.utils.parallel import Item, Result
from official.utils.paths import AnyPath

OPTIONS = (
    Flag(
        "address",
        str,
        None,
        "the cluster to join: auto, for the one of this host, or HOST:PORT. Default: that of the "
        "variable RAY_ADDRESS, or a Ray of this command alone, which ends with it",
    ),
    Flag(
        "num_cpus",
        int,
        None,
        "of a Ray of this command alone: the number of tasks at a time. Default: the cores",
        least=1,
    ),
    Flag(
        "object_store_memory",
        int,
        None,
        "of a Ray of this command alone: the bytes of its object store; more goes to files in "
        "TMPDIR, or in /tmp if its path is long. Default: 30% of the memory",
        least=75 << 20,
    ),
    Flag(
        "task_timeout",
        int,
        None,
        "the seconds that the command waits for one task when those before it are done. One that "
        "takes longer is stopped and tried again, and the second time it ends the command. "
        "Default: without end",
        least=1,
    ),
)
_SECONDS_TO_REACH = 10.0  # a cluster
_RETRIES = 4  # of a task whose process or host died
_LONGEST_FOLDER = 30  # characters: the names of Ray's sockets, of at most 107, begin with it


class _Task(NamedTuple):
    """A task that was submitted.

    Attributes:
      number: the number of its item.
      arguments: what its function gets.
      results: the references of what its function returns.
    """

    number: int
    arguments: tuple
    results: list[ObjectRef]


class Runner:
    """Runs functions in tasks of Ray; see `official.utils.engines`."""

    def __init__(self, options: Sequence[str], setup: Callable[[], None], folder: AnyPath):
        """Reads the options, which are `OPTIONS`.

        Raises:
          UserError: an option is wrong.
        """
        self._options = _read(options)
        self._setup = setup
        self._started = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if not ray.is_initialized():
            self._started.enter_context(_running(self._options))
        return self

    def __exit__(self, *error: object) -> None:
        self._started.close()

    def ordered(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Yields `function(item)` for each item, in order.

        At most twice as many items as CPUs are in progress, which bounds the memory.

        Args:
          function: a pure function that can be pickled; it runs in the workers only.
          items: the items, which are read as needed.

        Raises:
          UserError: the function raised it, or a task was killed, or took too long.
        """
        pickled = ((pickle.dumps(item),) for item in items)
        applied = functools.partial(_pickled, function=function)
        for (result,) in self.results(applied, pickled, function):
            yield pickle.loads(result)

    def results(
        self,
        function: Callable[..., tuple],
        arguments: Iterable[tuple],
        named: Callable,
        references: int = 0,
    ) -> Iterator[tuple]:
        """Yields what a function returns, in order.

        (What Ray pickles has arrays that nobody may write to; so items and results are bytes.)

        Args:
          function: a pure function that can be pickled. It returns a tuple of one value, and of
            `references` others, which stay in the object store.
          arguments: the arguments of each call. References are replaced by their values.
          named: the function that an error names.
          references: see above.

        Yields:
          The value, and the references of the others.

        Raises:
          UserError: as for `ordered`.
        """
        shared = ray.put(pickle.dumps((function, self._setup)))
        task = _apply.options(max_retries=_RETRIES, num_returns=1 + references)

        def submit(number: int, given: tuple) -> _Task:
            results = task.remote([shared], *given)
            return _Task(number, given, results if references else [results])

        most = max(2, 2 * int(ray.cluster_resources().get("CPU", 1)))
        pending: collections.deque[_Task] = collections.deque()
        try:
            for number, given in enumerate(arguments):
                pending.append(submit(number, given))
                if len(pending) >= most:
                    yield self._result(pending.popleft(), submit, named)
            while pending:
                yield self._result(pending.popleft(), submit, named)
        finally:
            if ray.is_initialized():  # or `cancel` would start it
                for left in pending:
                    ray.cancel(left.results[0], force=True)

    def _result(self, task: _Task, submit: Callable[[int, tuple], _Task], named: Callable) -> tuple:
        """Waits for a task; one that hangs is tried twice."""
        limit = self._options.task_timeout
        for again in (False, True):
            if again:
                task = submit(task.number, task.arguments)
            if ray.wait([task.results[0]], timeout=limit)[0]:
                with user_errors():
                    return (ray.get(task.results[0]), *task.results[1:])
            ray.cancel(task.results[0], force=True)
        raise UserError(
            f"--task_timeout={limit}: the task {_name(named)}, number {task.number} from 0, was "
            "not done in this time, nor in a second try: look at its host, or give it more seconds"
        )


def _name(function: Callable) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__qualname__", repr(function))


def _pickled(item: bytes, function: Callable[[Any], Any]) -> tuple[bytes]:
    return (pickle.dumps(function(pickle.loads(item))),)


@ray.remote
def _apply(shared: list[ObjectRef], *arguments: Any) -> Any:
    """Calls a function in a worker, which is set up before the first time."""
    function, setup = _loaded(*shared)
    _set_up(setup)
    values = function(*arguments)
    return values if len(values) > 1 else values[0]


@functools.lru_cache(maxsize=4)
def _loaded(shared: ObjectRef) -> tuple[Callable[..., tuple], Callable[[], None]]:
    quiet_import.install(keras=False)  # as in the workers of a `Pool`
    return pickle.loads(ray.get(shared))


@functools.cache
def _set_up(setup: Callable[[], None]) -> None:
    # It is too late if a worker of another command of this Ray has begun with TensorFlow.
    with contextlib.suppress(RuntimeError):
        setup()


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turns errors of Ray into UserError, but for those of functions that are none.

    Raises:
      UserError: a function raised it, or Ray gave up.
    """
    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from None
        raise
    except RayError as error:
        reason = str(error).strip().partition("\n")[0]
        raise UserError(
            f"--runner=ray: {type(error).__name__}: {reason}: a process or a host ended, most "
            "likely because memory ran out: try again with fewer tasks on a host"
        ) from error


def _read(options: Sequence[str]) -> Values:
    """Reads the options of a command line.

    Raises:
      UserError: an option is wrong.
    """
    given = flags.FlagValues()
    define(OPTIONS, given)
    try:
        more = given(["ray", *options])[1:]
        if more:
            raise flags.Error(f"unexpected argument {more[0]!r}")
        values = Values(OPTIONS, given)
        joins = values.address or os.environ.get("RAY_ADDRESS")
        own = ("num_cpus", "object_store_memory")
        if joins and (wrong := [name for name in own if getattr(values, name) is not None]):
            raise flags.Error(f"--{wrong[0]}: the cluster at {joins} has its own: remove it")
    except flags.Error as error:
        known = "\n".join(f"  --{flag.name}: {flag.meaning}." for flag in OPTIONS)
        raise UserError(f"--runner=ray: {error}. Options after `--` are:\n{known}") from None
    return values


@contextlib.contextmanager
def _running(options: Values) -> Iterator[None]:
    """Starts Ray or joins a cluster, for the block.

    Raises:
      UserError: there is no such cluster, or Ray does not start.
    """
    address = options.address or os.environ.get("RAY_ADDRESS") or "local"
    # Ray would send reports of what it is used for.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    more: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        if address == "local":
            long = len(tempfile.gettempdir()) > _LONGEST_FOLDER
            # Not Ray's own, /tmp/ray, which other users can read and where files stay.
            folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp" if long else None)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            more = {
                "num_cpus": options.num_cpus,
                "object_store_memory": options.object_store_memory,
                "include_dashboard": False,
                "_temp_dir": folder,
            }
            stack.enter_context(engines.importable())
        else:
            _check_reached(address)
        stack.callback(ray.shutdown)
        with _kept_signals():
            try:
                ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **more)
            except (ConnectionError, OSError, RuntimeError, ValueError) as error:
                raise UserError(f"--runner=ray: --address={address}: {error}") from error
        yield


def _check_reached(address: str) -> None:
    """Raises UserError if there is nothing at an address: Ray would try it for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon:  # auto
        return
    try:
        socket.create_connection((host, int(port)), _SECONDS_TO_REACH).close()
    except (OSError, ValueError) as error:
        raise UserError(
            f"--runner=ray: --address={address}: {error}: give HOST:PORT as `ray start --head` "
            "says it, or auto on a host of the cluster"
        ) from None


@contextlib.contextmanager
def _kept_signals() -> Iterator[None]:
    """Keeps what this process does when it is asked to end, which `ray.init` would replace."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
