r"""Computes vectors of texts or of their tokens, or states of shards.

Any model computes vectors:

  garden embed --model_dir=MODEL --texts=texts.txt --output=vectors.npy

A model with the objective sparse_embedding computes sparse ones: a weight for each word. The file
.npz is that of scipy.sparse.load_npz.

  garden embed --model_dir=MODEL --texts=texts.txt --output=vectors.npz

Files of any size become a folder of pieces, by several processes or on an engine (--runner).
If it is stopped, the same command goes on:

  garden embed --model_dir=MODEL --texts=corpus.jsonl --output=VECTORS \
      --pieces=npy --workers=8

--append adds the texts of another file to the folder, and --mode=search --vectors searches it.

Heads over a frozen encoder learn from its states, which are computed once:

  garden embed --layers=all --model_dir=MODEL --data=TASK_SHARDS \
      --output=STATES
  garden train --config=configs/finetune/layer_mix.yaml --data=TASK_SHARDS \
      --init=MODEL --model_dir=TUNED --override=recipe.layer_states=STATES
"""

from official.commands.modes import mode, vectors
from official.commands.modes.mode import Mode, say
from official.serving import DTYPES
from official.utils import errors, runner_flags
from official.utils.engines import Engine
from official.utils.flag_table import Flag, Values

FLAGS = (
    Flag(
        "data",
        str,
        None,
        "folder of task shards, in the place of --texts: the states of all layers are written, for "
        "recipe.layer_states.",
    ),
    mode.MODEL_DIR,
    Flag("split", str, None, "with --data: the split. Default: all of them."),
    Flag(
        "output",
        str,
        None,
        "what to write: .npy or .jsonl, of sparse vectors .npz or .jsonl; or with --pieces or "
        "--data a folder.",
    ),
    Flag("texts", str, None, "the texts, in a file as --queries of search."),
    *vectors.FLAGS,
    Flag(
        "prompt_name",
        str,
        None,
        "a prompt of embedding.json, which stands before each text. Default: the default prompt "
        "there, if there is one.",
    ),
    Flag(
        "layer",
        int,
        None,
        "0 = embeddings, 1 = first layer, -1 = last layer. Default: the last layer; for the "
        "vectors of texts of ELMo the mix of its head, or without one the mean of all layers.",
    ),
    Flag(
        "state",
        str,
        "fresh",
        "of ELMo: carry = the lines of --texts are read one after another, each from the state of "
        "the LSTMs that the line before it left, as in ELMo's release. fresh = each begins with a "
        "fresh state.",
        values=("fresh", "carry"),
    ),
    Flag(
        "layers",
        str,
        "one",
        "one layer, which --layer names, or all with the embeddings. With --data, all layers of "
        "the tokens of task shards are written to the folder --output, for recipe.layer_states.",
        values=("one", "all"),
    ),
    Flag(
        "pieces",
        str,
        None,
        "write the vectors of --texts with their ids to a folder --output, in pieces of this "
        "format. If the command is stopped, the same command goes on.",
        values=("npy", "parquet"),
    ),
    Flag(
        "dtype",
        str,
        "float32",
        "with --pieces=npy: the type of the numbers. float16 and bfloat16 have 2 bytes. int8 has "
        "one scale for all. bits say whether a number of a normalized vector is positive.",
        values=DTYPES,
    ),
    Flag(
        "append",
        bool,
        False,
        "with --pieces=npy: the folder is complete, and gets the texts as new pieces. Their ids "
        "are new. Until all of them are there, it is what it was.",
    ),
    Flag("piece_size", int, 16_384, "the number of texts of each of --pieces.", least=1),
    Flag(
        "workers",
        int,
        0,
        "with --pieces: the number of processes, each with one thread of a CPU. 0 = one with all "
        "threads.",
        least=0,
    ),
    runner_flags.flag("with --pieces: "),
    Flag("tokens", bool, False, "a vector for each token, with its characters."),
    mode.CHECKPOINT,
)


def needs_pieces(engine: Engine) -> errors.UserError:
    """Returns the error of an engine that has nothing to do."""
    return errors.UserError(f"--runner={engine.name}: is for --mode=embed with --pieces; remove it")


def run(options: Values, engine: Engine | None = None) -> None:
    """Writes the vectors of texts or of their tokens, or the states of all layers for shards.

    Args:
      options: the values of the flags.
      engine: where pieces are made; None = on this machine.
    """
    if engine and not options.pieces:
        raise needs_pieces(engine)
    if bool(options.texts) == bool(options.data):
        raise errors.UserError("give either --texts=FILE or --data=SHARDS (--mode=embed)")
    if options.workers and not options.pieces:
        raise errors.UserError(
            f"--workers={options.workers}: the processes write --pieces: give it"
        )
    for flag in ("append", "dtype", "piece_size"):
        if options.is_given(flag) and not options.pieces:
            raise errors.UserError(f"--{flag}: is for a folder of --pieces: give it")
    if options.data:
        _embed_shards(options)
        return
    layer = "all" if options.layers == "all" else options.layer
    if options.pieces:
        _embed_pieces(options, layer, engine)
        return
    from official.serving.vectors import vector_files
    from official.tasks import text_files

    vector_files.check_output(options.output, options.tokens)
    texts = text_files.Counted(options.texts)
    others = options.tokens or layer is not None or options.state != "fresh"
    model = mode.vectors(options, whole=others)
    vector_files.write(
        model.embedder,
        (text for _, text in texts),
        options.output,
        count=texts.count,
        settings=model.settings,
        layer=layer,
        tokens=options.tokens,
        state=options.state,
        prompt=options.prompt_name,
    )


def _embed_pieces(options: Values, layer: int | str | None, engine: Engine | None) -> None:
    """Writes the vectors of texts to a folder."""
    from official.serving import vector_pieces

    for flag, wrong in (
        ("--tokens", options.tokens),
        ("--state=carry", options.state != "fresh"),
        ("--sparse", options.sparse),
        ("--max_active_dims", options.max_active_dims is not None),
    ):
        if wrong:
            raise errors.UserError(f"{flag}: not supported with --pieces; remove it")
    chosen = vector_pieces.Options(
        options.model_dir,
        options.checkpoint,
        options.pooling,
        options.normalize,
        options.max_length,
        layer,
        options.prompt_name,
        options.pieces,
        options.piece_size,
        precision=options.precision,
        runtime=options.runtime,
        dtype=options.dtype,
    )
    vector_pieces.write(
        chosen, options.texts, options.output, options.workers, say, engine, options.append
    )


def _embed_shards(options: Values) -> None:
    """Writes the states of all layers for the examples of a shard folder."""
    from official.evaluation import layer_states

    if options.state != "fresh":
        raise errors.UserError("--state=carry is for --texts: the examples of shards are shuffled")
    for flag in ("precision", "runtime"):
        if options.is_given(flag):
            raise errors.UserError(f"--{flag}: not supported with --data; remove it")
    if options.layers != "all":
        raise errors.UserError("--data: heads read all layers of shards: give --layers=all")
    splits = [options.split] if options.split else []
    known = {"checkpoint": options.checkpoint, "report": say}
    layer_states.write(options.model_dir, options.data, splits, options.output, **known)
    print(f"wrote {options.output}")


MODE = Mode(FLAGS, ("model_dir", "output"), run)
