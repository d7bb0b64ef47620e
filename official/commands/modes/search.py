r"""Ranks documents for queries by their vectors, exactly.

  garden search --model_dir=MODEL --queries=queries.tsv \
      --texts=documents.tsv --output=found.run --top_k=100

Vectors that --mode=embed --pieces=npy has stored are not computed again:

  garden search --model_dir=MODEL --queries=queries.tsv \
      --vectors=VECTORS --output=found.run

A folder of BEIR (corpus.jsonl, queries.jsonl, qrels/test.tsv) is searched and scored. A model of
the objective ranking then scores the documents that were found, and orders them anew:

  garden search --model_dir=MODEL --beir=FOLDER --output=found.run
  garden search --model_dir=RANKER --beir=FOLDER --rerank=found.run \
      --output=reranked.run

Runs of several searches are joined by the ranks of their documents, without a model:

  garden search --fuse=bm25.run,found.run --beir=FOLDER --output=fused.run
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from official.commands.modes import mode, vectors
from official.commands.modes.mode import Mode
from official.utils import errors, paths, progress
from official.utils.flag_table import Flag, Values

if TYPE_CHECKING:
    from official.tasks import beir

FLAGS = (
    mode.MODEL_DIR,
    Flag(
        "queries",
        str,
        None,
        "a file of queries: .tsv with the columns id and text, .jsonl with `_id` and `text` (and "
        "perhaps `title`), .parquet with a column `text`, or a text on each line; the ids of these "
        "two are the numbers of the rows. .gz or .zst may follow.",
    ),
    Flag("texts", str, None, "the documents, in a file as --queries."),
    Flag(
        "vectors",
        str,
        None,
        "in place of --texts, or of those of --beir: a folder of the vectors of the documents, "
        "which --mode=embed --pieces=npy has written with this model and these settings.",
    ),
    Flag(
        "rescore",
        str,
        None,
        "with --vectors: a folder of the vectors of the same documents in larger numbers. Ten "
        "times --top_k documents are found by --vectors, and compared again by these.",
    ),
    Flag(
        "beir",
        str,
        None,
        "a folder of BEIR with corpus.jsonl, queries.jsonl and qrels/, in place of --queries and "
        "--texts. --split names the judgments; the metrics are printed.",
    ),
    Flag("split", str, None, "with --beir: the judgments. Default: test."),
    Flag("output", str, None, "file to write: .run."),
    Flag("top_k", int, None, "the number of documents for each query; default: 100.", least=0),
    Flag(
        "rerank",
        str,
        None,
        "a TREC run, of which the model scores the --top_k best documents of each query; it has "
        "the objective ranking. If not, all documents are compared by their vectors.",
    ),
    Flag(
        "fuse",
        list,
        None,
        "TREC runs, two or more, in place of a search by a model: the score of a document is the "
        "sum of 1 / (60 + its rank) over the runs that have it. Needs --output alone; with --beir "
        "the metrics are printed.",
    ),
    Flag(
        "pool_factor",
        float,
        None,
        "with a model of the objective late_interaction: documents have so many times fewer "
        "vectors than tokens, means of similar ones. Default: 1, all of them.",
    ),
    *vectors.FLAGS,
    mode.CHECKPOINT,
)


# The flags that --fuse may have beside it.
_OF_FUSED = ("fuse", "beir", "split", "output", "top_k")


def run(options: Values) -> None:
    """Writes the documents that suit queries best, as a TREC run, and its metrics if it has any."""
    from official.serving.vectors import search
    from official.tasks import beir, text_files, trec

    search.check_output(options.output)
    top_k = search.TOP_K if options.top_k is None else options.top_k
    search.check_top_k(top_k)
    if options.is_given("fuse"):
        _fuse(options, top_k)
        return
    if not options.model_dir:
        raise errors.UserError("--model_dir is missing: only --fuse needs none; see --help")
    if bool(options.beir) == bool(options.queries or options.texts):
        raise errors.UserError("give either --beir=FOLDER or --queries=FILE and --texts=FILE")
    if options.vectors and options.pool_factor is not None:
        raise errors.UserError("--pool_factor: the vectors of --vectors are stored: remove it")
    if options.rescore and not options.vectors:
        raise errors.UserError("--rescore: is for --vectors: give it")
    for flag in ("texts", "rerank"):
        if options.vectors and getattr(options, flag):
            raise errors.UserError(f"give either --{flag} or --vectors")
    if options.rerank and options.runtime != "tensorflow":
        raise errors.UserError("--runtime=litert: --rerank compares no vectors; remove it")
    judged = None
    if options.beir:
        judged = beir.read(options.beir, options.split or "test")
        queries, documents = judged.queries, judged.documents
    else:
        for name in ("queries", "texts"):
            if not (getattr(options, name) or (name == "texts" and options.vectors)):
                raise errors.UserError(f"--{name} is missing (--mode=search); see --help")
        queries = dict(text_files.unique(options.queries))
        documents = paths.path(options.texts or "")
    if options.rerank:
        from official.serving import reranking  # imports TensorFlow

        ranker = mode.whole_model(options)
        _pool(options, ranker.embedder)
        places = (options.output, top_k, ranker.config.name, progress.say)
        found = trec.read_run(paths.path(options.rerank), queries)
        found = beir.without_own(found) if judged else found
        known = reranking.write(ranker, queries, documents, found, *places)
    else:
        others = bool(options.vectors) or options.pool_factor is not None
        model = mode.vectors(options, whole=others)
        embedder = model.embedder
        _pool(options, embedder)
        embedder.settings = model.settings
        places = (options.output, top_k, mode.model_name(options, embedder), progress.say)
        stored = options.vectors and search.opened(embedder, options.vectors, options.rescore)
        known = search.write(embedder, queries, stored or documents, *places, own=not judged)
    print(f"wrote {options.output}: {len(queries):,} queries, {len(known):,} documents")
    if judged:
        _score(options.output, judged, known)


def _pool(options: Values, embedder: Any) -> None:
    """Sets --pool_factor.

    Raises:
      UserError: the model has no vectors of tokens.
    """
    from official.evaluation import max_sim

    if options.pool_factor is not None:
        max_sim.check_factor(options.pool_factor)
        embedder.late  # noqa: B018  (refuses a model without vectors of tokens)
        embedder.pool_factor = options.pool_factor


def _fuse(options: Values, top_k: int) -> None:
    """Joins runs by ranks, and writes the run and its metrics if it has any."""
    from official.tasks import beir, text_files, trec
    from official.utils import atomic

    for flag in FLAGS:
        if flag.name not in _OF_FUSED and options.is_given(flag.name):
            raise errors.UserError(f"--fuse: no model searches; remove --{flag.name}")
    if len(options.fuse) < 2:
        raise errors.UserError("--fuse: expected two runs or more, with commas between them")
    if options.split and not options.beir:
        raise errors.UserError("--split: names the judgments of --beir, which is missing")
    judged = beir.read(options.beir, options.split or "test") if options.beir else None
    known: dict[str, str] = dict(text_files.unique(judged.documents)) if judged else {}
    of = (judged.queries, known) if judged else ()
    runs = [trec.read_run(paths.path(name), *of) for name in options.fuse]
    if judged:
        runs = [beir.without_own(run) for run in runs]
    found = trec.fused(runs)
    with atomic.file(options.output) as stream:
        trec.write_run(stream, found, "fused", top_k)
    print(f"wrote {options.output}: {len(found):,} queries, {len(runs)} runs")
    if judged:
        _score(options.output, judged, known)


def _score(output: str, judged: "beir.Judged", documents: Collection[str]) -> None:
    """Prints the metrics of a run, and what the judgments lack."""
    from official.evaluation import rankings
    from official.tasks import beir, trec

    for count, what in (
        (judged.unjudged, "queries without judgments, which are left out"),
        (judged.left_out, "judgments of unknown queries, which are left out"),
        (judged.unknown(documents), "judgments of unknown documents, which count as not found"),
    ):
        if count:
            print(f"{count:,} {what}")
    metrics = rankings.compute(beir.METRICS, judged.qrels, trec.read_run(paths.path(output)))
    for name, value in metrics.items():
        print(f"{name:24} {value:.6f}")


MODE = Mode(FLAGS, ("output",), run)
