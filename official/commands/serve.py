r"""Answers requests to a model over HTTP.

  garden serve run/finetuned --port=8000
  curl localhost:8000/api/classify -H 'Content-Type: application/json' \
      -d '{"texts": ["a fine film", "a dull one"]}'

MODEL is a model folder, what official.load takes, or a SavedModel of official.export. Requests of
many clients share batches. /openapi.json describes what the model answers, /metrics has
counters for Prometheus. Vectors and ranking also have the forms of OpenAI's API (/v1/embeddings)
and of text-embeddings-inference (/embed, /rerank), so that their clients work. SIGTERM or Ctrl-C
ends it when what is begun is answered.
"""

import functools
import os
from typing import TYPE_CHECKING

from absl import flags

from official.commands.modes import mode, vectors
from official.service import MAX_BYTES
from official.utils import command_line, errors, flag_table, paths, progress, sockets
from official.utils.flag_table import Flag, Values

if TYPE_CHECKING:
    from official.serving.exported_model import ExportedModel
    from official.serving.loaded_model import LoadedModel

KEY_VARIABLE = "GARDEN_API_KEY"
FLAGS = (
    Flag("port", int, 8000, "The port. 0 = any free one, which is printed.", least=0),
    Flag(
        "host",
        str,
        "127.0.0.1",
        "The address that is listened at. Beyond this machine, such as 0.0.0.0, a key is needed.",
    ),
    Flag(
        "key_file",
        str,
        None,
        "A file with the key that requests have to send (Authorization: Bearer KEY). Default: the "
        f"variable {KEY_VARIABLE} of the environment, or no key.",
    ),
    mode.CHECKPOINT,
    vectors.PRECISION,
    vectors.RUNTIME,
    Flag(
        "name",
        str,
        None,
        "What responses call the model. Default: the name of the folder.",
    ),
    Flag(
        "batch_tokens",
        int,
        8192,
        "Requests share a batch of about so many tokens.",
        least=1,
    ),
    Flag(
        "wait_ms",
        int,
        2,
        "How many milliseconds a request that comes alone waits for others to share its batch.",
        least=0,
    ),
    Flag(
        "max_texts",
        int,
        256,
        "The largest number of texts of a request. More are refused (413).",
        least=1,
    ),
    Flag(
        "max_waiting",
        int,
        4096,
        "The largest number of texts that wait. More are refused (503).",
        least=1,
    ),
    Flag(
        "max_bytes",
        int,
        MAX_BYTES,
        "The size of the largest body of a request. Larger ones are refused (413).",
        least=1,
    ),
    Flag(
        "max_connections",
        int,
        1000,
        "The largest number of connections. Requests on others are refused (503).",
        least=1,
    ),
)


def main(argv: list[str]) -> None:
    """Loads a model and serves it."""
    folders, options = argv[1:], Values(FLAGS, flags.FLAGS)
    if len(folders) != 1:
        raise errors.UserError("name one model folder: garden serve MODEL")
    [folder] = folders
    key = _key(options)
    from official.service import server

    loopback = server.is_loopback(options.host)
    if not loopback and key is None:
        raise errors.UserError(
            f"--host={options.host}: others than this machine can reach it: give --key_file=FILE "
            f"or set {KEY_VARIABLE}"
        )
    limits = server.Limits(
        options.batch_tokens,
        options.wait_ms / 1000,
        options.max_waiting,
        options.max_texts,
        options.max_bytes,
        options.max_connections,
    )
    given = f"--host={options.host} --port={options.port}"
    with sockets.listen(options.host, options.port, given) as listener:
        mode.say(f"loading {folder}")
        with progress.signs("loading", mode.say):
            model = _model(options, folder)
        name = options.name or folder.rstrip("/").rpartition("/")[-1].removeprefix("package:")
        with server.application(model, name, limits, key, loopback, mode.say) as app:
            host, port = listener.getsockname()[:2]
            mode.say(f"http://{host}:{port} (Ctrl-C ends)")
            server.http(app, limits.max_connections).run([listener])


def _model(options: Values, folder: str) -> "LoadedModel | ExportedModel":
    """Loads a model folder or an export."""
    from official.serving import exported_model, loaded_model

    if not (paths.path(folder) / exported_model.GRAPH).exists():
        return loaded_model.load(folder, options.checkpoint, options.precision, options.runtime)
    for name in ("checkpoint", "precision", "runtime"):
        if options.is_given(name):
            raise errors.UserError(f"--{name}: an export has it inside; remove it")
    return exported_model.ExportedModel(folder)


def _key(options: Values) -> str | None:
    """Returns the key that requests need; None = none does.

    Raises:
      UserError: the file cannot be read, or the key is empty or no word of ASCII.
    """
    if options.key_file is None:
        source, key = KEY_VARIABLE, os.environ.get(KEY_VARIABLE)
        if key is None:
            return None
    else:
        source = f"--key_file={options.key_file}"
        try:
            key = paths.path(options.key_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise errors.UserError(f"{source}: {error}") from None
    if not key.isascii() or not key.isprintable() or not key or " " in key:
        raise errors.UserError(f"{source}: the key is not a word of visible ASCII characters")
    return key


COMMAND = command_line.Command(
    main,
    functools.partial(flag_table.define, FLAGS),
    usage="MODEL [FLAGS]",
    name="garden serve",
    text=__doc__,
)
