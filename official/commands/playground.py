r"""Serves a page to try models, on this machine alone.

  python -m official.commands.playground \
      --model_dir=run/pretrained,run/finetuned

The page has a tab for each thing that one of the models can do: fill masks, classify, score, answer
questions, choose, tag, rank, compare and search texts, generate, and attention maps. Its address is
printed when the models are loaded, and Ctrl-C ends it. Nothing is loaded from elsewhere, and
nothing is sent there.
"""

from absl import flags

from official.utils import command_line, errors, paths, progress
from official.web import MAX_BYTES

FLAGS = flags.FLAGS
_REQUIRED = ("model_dir",)


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("model_dir", None, "One or several model folders, separated by commas.")
    flags.DEFINE_string(
        "checkpoint", "best", "The checkpoint of each model: best, last, a step or a path."
    )
    flags.DEFINE_integer(
        "port",
        8600,
        "The port of the page. 0 = any free one.",
        lower_bound=0,
        upper_bound=65535,
    )
    flags.DEFINE_integer(
        "max_bytes",
        MAX_BYTES,
        "The size of the largest form that is read; percent signs of an encoded text count.",
        lower_bound=1,
    )


def main(argv: list[str]) -> None:
    """Loads the models and serves the page."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    folders = paths.split_folders(FLAGS.model_dir)
    from official.serving import loaded_model
    from official.web import server

    with server.listen(FLAGS.port) as listener:
        models = {}
        for folder in folders:
            progress.say(f"loading {folder}")
            models[folder] = loaded_model.load(folder, FLAGS.checkpoint)
        host, port = listener.getsockname()
        print(f"http://{host}:{port} (Ctrl-C ends)", flush=True)
        app = server.make_app(models, FLAGS.max_bytes)
        server.make_server(app, listener).serve_forever()


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
