"""Converts a test collection, as distributed, into the files of a ranking task.

  python -m tfrecords_tools.build_ranking_data --format=cranfield --input=DIR --output=DIR
  python -m tfrecords_tools.build_task_shards --task=ranking --input=DIR --queries=queries.tsv \
    --documents=documents.tsv --qrels=qrels --train_file=train.run \
    --validation_file=validation.run --test_file=test.run --tokenizer=DIR --output=DIR

Formats, and the files that --input must contain:
  cranfield  cran.all.1400, cran.qry and cranqrel. `cranqrel` numbers the queries in the order of
             cran.qry, whose own numbers have gaps. Its grades 1 (a complete answer) to 4 (of some
             interest) become 4 to 1, all others 0. .T is ignored, because .W begins with the title.
  cisi       CISI.ALL, CISI.QRY and CISI.REL; documents that CISI.REL lists are relevant.
  wikiqa     train.tsv, dev.tsv and test.tsv with qid, question, answer and label.

It writes queries.tsv, documents.tsv, qrels, and a BM25 run for each split. For Cranfield and CISI,
a run has the --depth best documents of each query, and --validation and --test are random shares of
the queries. For WikiQA, a run has the answers of each question, in the splits of WikiQA. The
metrics of the runs are a baseline.
"""

from absl import flags

from official.utils import errors, paths
from official.utils.errors import UserError
from tfrecords_tools.tasks import ranking_data


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags of this command."""
    flags.DEFINE_enum(
        "format", None, list(ranking_data.READERS), "format of the collection", flag_values=values
    )
    flags.DEFINE_string("input", None, "folder of the files", flag_values=values)
    flags.DEFINE_string("output", None, "folder to create", flag_values=values)
    flags.DEFINE_integer(
        "depth", 100, "largest number of candidates of a query", 1, flag_values=values
    )
    flags.DEFINE_float("validation", 0.2, "share of the queries", 0, 1, flag_values=values)
    flags.DEFINE_float("test", 0.2, "share of the queries", 0, 1, flag_values=values)
    flags.DEFINE_integer("seed", 0, "seed of the random shares", 0, flag_values=values)


def main(argv: list[str]) -> None:
    """Runs the command line."""
    del argv
    options = flags.FLAGS
    errors.require(options, "format", "input", "output")
    if options.validation + options.test >= 1:
        raise UserError(
            f"--validation={options.validation} and --test={options.test} leave nothing to learn "
            "from: their sum must be less than 1"
        )
    collection = ranking_data.READERS[options.format](paths.path(options.input))
    if not collection.splits:
        collection.splits = ranking_data.split_queries(
            collection.queries, options.validation, options.test, options.seed
        )
        collection.splits = {name: them for name, them in collection.splits.items() if them}
    sizes = ranking_data.write(collection, paths.path(options.output), options.depth)
    for reason, count in sorted(collection.left_out.items()):
        if count:
            print(f"left out: {count:,} {reason}")
    queries = ", ".join(f"{split} {count:,}" for split, count in sizes.items())
    print(
        f"{options.output}: {len(collection.documents):,} documents; queries: {queries}; "
        f"{sum(len(grades) for grades in collection.qrels.values()):,} judgements"
    )


run = errors.command(main, define_flags)


if __name__ == "__main__":
    run()
