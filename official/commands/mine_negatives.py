r"""Finds hard negatives for pairs of a query and a text that suits it, to learn vectors from.

  python -m official.commands.mine_negatives --input=pairs.tsv \
      --columns=question,answer --model_dir=ENCODER --output=triples.jsonl \
      --negatives=4 --relative_margin=0.05
  python -m tfrecords_tools.build_task_shards --task=embedding \
      --train_file=triples.jsonl --text_column=query \
      --text_pair_column=positive --negative_columns=negatives ...

All texts of --documents, or of the second column without it, are compared with each query: by the
vectors of the model in --model_dir, or by BM25. The negatives are among those of --first_rank to
--last_rank that are no positive of the same query in any row, and not the query itself. With
--margin or --relative_margin their scores are below that of the positive. With --beir=FOLDER in
place of --input, the pairs are the relevant documents of --split, and all documents are compared.

A line of the output has `query`, `positive` and the list `negatives`. Pairs with fewer negatives
are left out and counted.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from absl import flags

from official.utils import command_line, errors, paths, progress

if TYPE_CHECKING:
    from official.serving.vectors import negatives

FLAGS = flags.FLAGS
_REQUIRED = ("output",)


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string(
        "input", None, "The pairs: a .tsv file with a column a tab, or .jsonl; it may be .gz."
    )
    flags.DEFINE_list(
        "columns", None, "The columns of the query and of the positive; names, or indices from 0."
    )
    flags.DEFINE_bool("header", True, "Whether the first line of a .tsv file names the columns.")
    flags.DEFINE_string(
        "documents",
        None,
        "More texts to compare: .tsv with the columns id and text, .jsonl with `_id` and `text` "
        "(and perhaps `title`), .parquet with `text`, or a text on each line.",
    )
    flags.DEFINE_string(
        "beir", None, "Folder of BEIR with the pairs and the documents, in place of --input."
    )
    flags.DEFINE_string("split", "train", "The judgments of --beir.")
    flags.DEFINE_string("model_dir", None, "Model folder of the encoder that compares texts.")
    flags.DEFINE_string(
        "checkpoint", "best", "The checkpoint of --model_dir: best, last, a step or a path."
    )
    flags.DEFINE_bool("bm25", False, "Compare by BM25 in place of an encoder.")
    flags.DEFINE_string("output", None, "The file to write, .jsonl.")
    flags.DEFINE_integer("negatives", 1, "The number of negatives of each pair.", lower_bound=1)
    flags.DEFINE_integer(
        "first_rank",
        1,
        "The lowest rank of a negative, among the documents that are no positives of the query.",
        lower_bound=1,
    )
    flags.DEFINE_integer("last_rank", 100, "The highest rank of a negative.", lower_bound=1)
    flags.DEFINE_float(
        "margin",
        None,
        "The score of a negative is at least so much below that of the positive. Default: any.",
    )
    flags.DEFINE_float(
        "relative_margin",
        None,
        "The score of a negative is at least this part of the positive's score below it: 0.05 = at "
        "most 95 percent of it. Default: any.",
        lower_bound=0.0,
    )
    flags.DEFINE_enum(
        "sampling",
        "top",
        ["top", "random"],
        "top = the negatives of the lowest ranks, random = drawn among all ranks.",
    )
    flags.DEFINE_integer("seed", 0, "The seed of the draws.", lower_bound=0)
    flags.DEFINE_integer("batch_size", 32, "Texts that the encoder reads together.", lower_bound=1)
    flags.DEFINE_bool("skip_bad_rows", False, "Leave out rows that cannot be used, and count them.")


def main(argv: list[str]) -> None:
    """Writes pairs with negatives."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    from official.serving import loaded_model
    from official.serving.vectors import negatives

    if bool(FLAGS.model_dir) == FLAGS.bm25:
        raise errors.UserError("give either --model_dir=FOLDER or --bm25")
    if bool(FLAGS.input) == bool(FLAGS.beir):
        raise errors.UserError("give either --input=FILE or --beir=FOLDER")
    names = ("first_rank", "last_rank", "margin", "relative_margin", "sampling", "seed")
    values: dict[str, Any] = {name: FLAGS[name].value for name in names}
    settings = negatives.Settings(FLAGS.negatives, **values)
    negatives.check_output(FLAGS.output)
    pairs = _of_beir() if FLAGS.beir else _of_file()
    top_k = settings.last_rank + pairs.most_excluded
    if FLAGS.bm25:
        found = negatives.by_words(pairs, top_k, progress.say)
    else:
        embedder = loaded_model.load(FLAGS.model_dir, FLAGS.checkpoint).embedder
        found = negatives.by_vectors(embedder, pairs, top_k, FLAGS.batch_size, progress.say)
    if found.nothing:
        print(
            f"{found.nothing:,} queries share no word with a document: BM25 finds nothing for them"
        )
    lines, positive, negative = negatives.write(pairs, found, settings, FLAGS.output)
    for reason, count in sorted(pairs.left_out.items()):
        print(f"left out: {count:,} pairs {reason}")
    print(
        f"{FLAGS.output}: {lines:,} pairs with {settings.count} negatives each, of "
        f"{len(pairs.queries):,} queries and {len(pairs.documents):,} documents; mean scores: "
        f"positives {positive:.4f}, negatives {negative:.4f}"
    )


def _of_file() -> "negatives.Pairs":
    """Returns the pairs of --input, with --documents."""
    errors.require(FLAGS, "columns")
    from official.serving.vectors import negatives
    from official.tasks import text_files, text_rows
    from official.utils.text_lines import BadRows

    if len(FLAGS.columns) != 2:
        raise errors.UserError(
            f"--columns={','.join(FLAGS.columns)}: expected two, of the query and of the positive"
        )
    bad = BadRows(FLAGS.skip_bad_rows)
    rows = text_rows.Rows(paths.path(FLAGS.input), FLAGS.columns, FLAGS.header)
    pairs = []
    for number, (query, positive) in rows.texts(bad):
        if query.strip() and positive.strip():
            pairs.append((query, positive))
        else:
            bad("empty text", f"{FLAGS.input}, line {number}: a text is empty")
    if bad.counts:
        print(f"left out of {FLAGS.input}: {bad}")
    documents: Iterable[str] = ()
    if FLAGS.documents:
        documents = (text for _, text in text_files.texts_of(FLAGS.documents) if text.strip())
    return negatives.Pairs(pairs, documents)


def _of_beir() -> "negatives.Pairs":
    """Returns the pairs of --beir, with its documents."""
    from official.serving.vectors import negatives
    from official.tasks import beir, text_files

    judged = beir.read(FLAGS.beir, FLAGS.split)
    texts = text_files.unique(judged.documents)
    documents = {name: text for name, text in texts if text.strip()}
    if unknown := judged.unknown(documents):
        print(f"left out of {FLAGS.beir}: {unknown:,} judgments of unknown or empty documents")
    pairs = (
        (judged.queries[query], documents[name])
        for query, grades in judged.qrels.items()
        for name, grade in grades.items()
        if grade > 0 and name in documents
    )
    return negatives.Pairs(pairs, documents.values())


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
