"""Loads a model folder for use from Python: `official.load(DIR)`.

Shapes: B batch, T length, D hidden.
"""

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import override

from official.conversion.any_folder import open_folder
from official.evaluation import max_sim
from official.evaluation.sparse_vectors import SparseVectors
from official.saving.embedding_settings import EmbeddingSettings
from official.saving.generation_settings import Settings
from official.saving.served_model import ServedModel
from official.serving import PRECISIONS, RUNTIMES
from official.serving.compute import int8
from official.serving.compute.precision import round_weights
from official.serving.export import litert
from official.serving.generation import generator, mask_filler
from official.serving.generation.generator import Generator
from official.serving.light import folder as light
from official.serving.predictor import OBJECTIVES, Predictor
from official.serving.vectors import search
from official.serving.vectors.embedder import Embedder, TokenVectors
from official.serving.vectors.mteb_encoder import MTEBEncoder
from official.serving.vectors.stored import Stored, kind_of, read_manifest
from official.utils import given_texts, paths
from official.utils.errors import UserError
from official.utils.progress import Report


class LoadedModel(Predictor):
    """A model and its tokenizer: encodes texts and applies the heads of the model to them.

    Attributes:
      config: the config of the run that made the model.
      tokenizer: the tokenizer of the model.
      model: `official.modeling.model.Model` with the weights of the checkpoint.
      max_length: longer texts are cut to this number of tokens, special tokens included.
      generation: the settings of generation and the tasks that the model folder has.
    """

    def __init__(self, source: ServedModel, lite: str | None = None):
        super().__init__(source)
        self.generation = source.generation
        self.embedder = Embedder(source, lite)
        self._opened: tuple[Any, EmbeddingSettings, Stored] | None = None

    @functools.cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods below and of `Predictor` that this model can do."""
        heads = [name for name in OBJECTIVES if self.tasks(name)]
        heads += ["rank"] * (self.embedder.has_late and "rank" not in heads)
        fills = ["fill_mask"] * (mask_filler.why_not(self._source) is None)
        writes = ["generate"] * (generator.why_not(self.model) is None)
        return "encode", "search", "tokens", *fills, *heads, *writes

    def encode(
        self,
        texts: Sequence[str],
        batch_size: int = 32,
        pooling: str | Sequence[str] | None = None,
        layer: int | str | None = None,
        state: str = "fresh",
        *,
        normalize: bool | None = None,
        max_length: int | None = None,
        size: int | None = None,
        prompt: str | None = None,
        sparse: bool = False,
        max_active_dims: int | None = None,
        report: Report | None = None,
    ) -> Any:
        """Computes a vector for each text.

        What is None is as `embedding.json` of the model folder has it, which `official.convert`
        makes of a folder of sentence-transformers.

        Args:
          texts: any number of texts. Texts longer than `max_length` are cut.
          batch_size: the number of texts in a batch. Texts of similar length share a batch.
          pooling: `mean` over the tokens of a layer, special tokens included (of ELMo over the
            words, without the marks of the sentence); `max` over them; `mean_sqrt_len`, their sum
            divided by the root of their number; `weighted_mean`, with the weights 1, 2, ...;
            `first` or `last` token of a layer; or the `pooled` output. The vectors of several
            (`mean,max`, or a list) are joined. None = that of the folder, or `mean`.
          layer: 0 = the embeddings, 1 = the first layer, -1 = the last layer, 'all' = all of them.
            'mix', of ELMo = the layer mix of its head, or without one the mean of all layers.
            None = the last layer, or 'mix' of ELMo, so that its vectors are those of the output
            `default` of an export.
          state: of ELMo: 'fresh' = each text begins with a fresh state; 'carry' = the texts are
            read one after another, each from the state that the one before it left, as in ELMo's
            release.
          normalize: whether a vector is divided by its length. None = as the folder has it, or no.
          max_length: the number of tokens in place of `max_length` of the model, special tokens
            included.
          size: the number of first dimensions that are kept, before the norm, of a model that has
            learned several `sizes`; None = that of the folder, or all.
          prompt: the name of a prompt of the folder, which stands before each text. None = its
            default prompt, if it has one.
          sparse: whether the vectors have a weight for each word of the vocabulary, of the
            objective `sparse_embedding` or of a masked LM. Of a model with a table of queries, the
            prompt `query` takes the weights from the table. An empty text has no words.
          max_active_dims: of sparse vectors, the most words, those of the largest weights; None =
            as the folder has it, or all.
          report: is called with lines of progress; None = there are none.

        Returns:
          float32 [number of texts, D], in the order of `texts`; for all layers [number of texts,
          L + 1, D]. Joined vectors have a multiple of D. Sparse vectors are
          `official.evaluation.sparse_vectors.SparseVectors`.

        Raises:
          UserError: a single text is given instead of a list, the pooling, the layer or the prompt
            does not exist, `max_length` or `size` is out of range, the encoder has no state to
            carry, or sparse vectors are asked of a model without a masked LM, or with what only
            dense ones have.
        """
        settings = self.embedder.settings.with_values(
            pooling, normalize, max_length, size, max_active_dims
        )
        if sparse:
            others = {"pooling": pooling, "normalize": normalize, "layer": layer, "size": size}
            for name, value in others.items():
                if value is not None:
                    raise UserError(f"{name}: sparse vectors have none: remove it, or sparse")
            return self.embedder.sparse(texts, prompt, settings, batch_size, report)
        return self.embedder.texts(texts, settings, layer, batch_size, state, prompt, report)

    def search(
        self,
        queries: Sequence[str],
        documents: Sequence[str] | None = None,
        top_k: int = 10,
        batch_size: int = 32,
        sparse: bool | None = None,
        report: Report | None = None,
        *,
        vectors: str | os.PathLike | None = None,
        rescore: str | os.PathLike | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the documents whose vectors are nearest to those of queries, exactly.

        Vectors are compared as `embedding.json` of the model folder says, or else by cosine. If it
        has the prompts `query` and `document` (or `passage` or `corpus`), they stand before the
        texts. Sparse vectors are compared by their products, and a query finds the documents whose
        product is above 0, which share a word with it.

        Args:
          queries: Q texts.
          documents: N texts.
          top_k: the number of documents for each query.
          batch_size: the number of texts in a batch.
          sparse: whether the vectors are sparse, as for `encode`; None = whether the model has the
            objective `sparse_embedding`.
          report: is called with lines of progress; None = there are none.
          vectors: in place of `documents`, a folder of their vectors, which `--mode=embed
            --pieces=npy` has written with this model. Its files are mapped, and checked when the
            model first reads them.
          rescore: a folder of the vectors of the same documents in larger numbers. Ten times
            `top_k` documents are found by `vectors`, and compared again by these.

        Returns:
          The numbers of the documents, int64 [Q, K], the best first, and their scores, float32
          [Q, K]. K is `top_k`, or N if that is less. Higher scores are nearer; -inf is no match:
          that of a vector of zeros, and where a query finds fewer documents by sparse vectors,
          whose numbers are then -1.

        Raises:
          UserError: a single text is given instead of a list, `top_k` is less than 1, there are
            both documents and vectors, or vectors that are damaged, or of another model or other
            settings.
        """
        given_texts.check_list(queries, "queries")
        if (documents is None) == (vectors is None):
            raise UserError("search: give either documents or vectors")
        if rescore is not None and vectors is None:
            raise UserError("search: rescore: is for stored vectors: give vectors, or remove it")
        if documents is None:
            stored = self._stored(vectors or "", rescore)
            return search.nearest_stored(self.embedder, queries, stored, top_k, batch_size)
        given_texts.check_list(documents, "documents")
        count = len(documents)
        best = search.nearest(
            self.embedder, queries, documents, top_k, batch_size, report, count, sparse
        )
        return best.found

    def _stored(self, folder: str | os.PathLike, finer: str | os.PathLike | None) -> Stored:
        """Opens stored vectors, or returns those that were opened last if nothing has changed."""
        given = [(str(x), read_manifest(paths.path(x))) for x in (folder, finer) if x is not None]
        settings = self.embedder.settings
        if self._opened is None or self._opened[:2] != (given, settings):
            self._opened = given, settings, search.opened(self.embedder, folder, finer)
        return self._opened[2]

    def token_vectors(
        self,
        texts: Sequence[str],
        kind: str = "document",
        batch_size: int = 32,
        *,
        pool_factor: float = 1.0,
        report: Report | None = None,
    ) -> list[np.ndarray]:
        """Computes the vectors of tokens that the objective `late_interaction` compares.

        Args:
          texts: any number of texts, without the prefix of their kind.
          kind: `document` or `query`. Queries are expanded, and skipped words of documents have no
            vector, as the objective has it.
          batch_size: the number of texts in a batch.
          pool_factor: documents have about so many times fewer vectors: means of similar ones. 1 =
            one for each token.
          report: is called with lines of progress; None = there are none.

        Returns:
          For each text float32 [tokens, size of a vector], of the length 1.

        Raises:
          UserError: the model has no such objective, there is no such kind, `pool_factor` is less
            than 1, or a single text is given instead of a list.
        """
        max_sim.check_factor(pool_factor)
        found = self.embedder.compared_tokens(texts, kind, batch_size, report)
        return [max_sim.pooled(each, pool_factor) if kind == "document" else each for each in found]

    @override
    def rank(
        self,
        query: str | Sequence[str],
        documents: Sequence[str],
        batch_size: int = 32,
        raw: bool = False,
    ) -> np.ndarray:
        """See `Predictor.rank`; a model of the objective `late_interaction` compares tokens."""
        if self.tasks("rank") or not self.embedder.has_late:
            return super().rank(query, documents, batch_size, raw)
        given_texts.check_list(documents, "documents")
        queries = [query] * len(documents) if isinstance(query, str) else query
        queries, documents = given_texts.same_length(query=queries, documents=documents)
        return search.pair_scores(self.embedder, queries, documents, batch_size)

    def words(
        self, vectors: SparseVectors, top_k: int | None = None
    ) -> list[list[tuple[str, float]]]:
        """Returns the words of sparse vectors with their weights, the largest first.

        Args:
          vectors: a result of `encode(texts, sparse=True)`.
          top_k: the most words of a vector; None = all.
        """
        return vectors.words(self.tokenizer.pieces, top_k)

    def for_mteb(self, name: str | None = None, revision: str | None = None) -> MTEBEncoder:
        """Returns an object for `mteb.evaluate`, which compares encoders on many tasks (mteb 2).

        Prompts of `embedding.json` are chosen by task and type of text, as mteb does it.

        Args:
          name: the name of the results, `ORGANIZATION/MODEL`; None = `local/` and that of the
            config.
          revision: the version of the results, which mteb does not compute again; None = a checksum
            of the weights and the settings.

        Raises:
          UserError: the model compares sparse vectors, or those of tokens.
        """
        if (kind := kind_of(self.embedder)) != "dense":
            raise UserError(
                f"for_mteb: this model compares vectors of the kind {kind}, which are not "
                "supported: score a folder of BEIR with --mode=search --beir"
            )
        return MTEBEncoder(self.embedder, name or f"local/{self.config.name}", revision)

    def tokens(
        self,
        texts: Sequence[str],
        batch_size: int = 32,
        layer: int | str = -1,
        state: str = "fresh",
    ) -> list[TokenVectors]:
        """Computes a vector for each token of each text, with the characters of the token.

        Args:
          texts: as for `encode`.
          batch_size: as for `encode`.
          layer: a number, 'all' or 'mix', as for `encode`.
          state: as for `encode`.

        Returns:
          For each text its tokens without special tokens: pieces, starts, ends and vectors.

        Raises:
          UserError: a single text is given instead of a list, the layer does not exist, or the
            encoder has no state to carry.
        """
        return self.embedder.tokens(texts, layer, batch_size, state)

    @functools.cached_property
    def filler(self) -> mask_filler.MaskFiller | mask_filler.SentinelFiller:
        """What fills the masks of texts.

        Raises:
          UserError: the model cannot fill masks.
        """
        return mask_filler.make(self._source)

    def fill_mask(
        self,
        texts: Sequence[str],
        top_k: int = mask_filler.TOP_K,
        targets: Sequence[str] | None = None,
        batch_size: int = 32,
        report: Report | None = None,
    ) -> list[list[list[mask_filler.Filling]]]:
        """Fills the masks of texts, such as "Paris is the [MASK] of France.".

        A masked LM fills the mask token of its vocabulary, `[MASK]` or `<mask>`, with one token. If
        a text has several masks, each is filled as if the others remained. An encoder-decoder
        (T5) fills the sentinels `<extra_id_0>`, `<extra_id_1>`, ... with any number of tokens, all
        of them together: the fillings with the same number are of one generated text.

        Args:
          texts: any number of texts, each with at least one mask.
          top_k: the number of fillings for each mask. An encoder-decoder searches with as many
            beams.
          targets: the tokens to choose from: pieces of the vocabulary, or texts that are one token;
            None = all. The probabilities are those among all tokens.
          batch_size: the number of texts in a batch. Texts of similar length share a batch.
          report: is called with lines of progress; None = there are none.

        Returns:
          For each text a list for each mask, in the order of the text, with its fillings, the most
          probable first: `word`, `probability`, `token_ids` and `text`, which is the text with this
          mask filled.

        Raises:
          UserError: the model cannot fill masks, a text has no mask or one beyond `max_length`, a
            target is not one token, `top_k` is less than 1, or a single text is given instead of a
            list.
        """
        return self.filler.texts(texts, top_k, targets, batch_size, report)

    def generate(
        self,
        prompts: Sequence[str],
        batch_size: int = 8,
        task: str | None = None,
        report: Report | None = None,
        **settings: int | float | str | None,
    ) -> list[str]:
        """Continues texts with a causal LM, or generates texts from texts with an encoder-decoder.

        Args:
          prompts: any number of texts. A text may be empty. An encoder-decoder cuts texts longer
            than `max_length`.
          batch_size: the number of texts in a batch.
          task: a task of `generation.json` of the model folder, such as `summarization`, with its
            settings and the prefix of its texts; None = the settings for all tasks.
          report: is called with lines of progress; None = there are none.
          **settings: those of `official.saving.generation_settings.Settings`, in place of the
            folder's. A causal LM of fewer than 128 positions writes half of them by default.

        Returns:
          Each prompt with its continuation, or from an encoder-decoder the generated texts alone;
          `num_return_sequences` for each prompt, one after another.

        Raises:
          UserError: the model has neither of the objectives `causal_lm` and `seq2seq_lm`, a setting
            or the task is not known, a setting is out of range, or a prompt of a causal LM leaves
            no room for the new tokens.
        """
        generator, defaults = self._generator, self.generation
        given = defaults.values(settings, task)
        given.setdefault("max_new_tokens", generator.reader.new_tokens)
        values = Settings.of(given)
        given_texts.check_texts(prompts, batch_size, "generate")
        prefix = defaults.of(task).prefix
        prompts = [prefix + text for text in prompts]
        return generator.texts(prompts, values, batch_size, report)

    @functools.cached_property
    def _generator(self) -> Generator:
        return Generator(self._source)


def load(
    model_dir: str | os.PathLike,
    checkpoint: str = "best",
    precision: str = "float32",
    runtime: str = "tensorflow",
) -> LoadedModel:
    """Loads a model folder by TensorFlow; arguments and errors are those of `official.load`."""
    for name, value, known in (
        ("precision", precision, PRECISIONS),
        ("runtime", runtime, RUNTIMES),
    ):
        if value not in known:
            raise UserError(f"{name}: {value!r} is not one of {', '.join(known)}")
    path = paths.path(model_dir)
    if light.is_light(path):
        raise light.no_whole_model(path)
    lite = precision if runtime == "litert" else None
    if lite is not None:
        litert.check(lite)
        precision = "float32"  # LiteRT's converter rounds by itself.
    if precision == "int8":
        int8.check()
    if precision == "float32":
        # TensorFlow computes float32 products with 10 bits of mantissa on GPUs that have TF32.
        tf.config.experimental.enable_tensor_float_32_execution(False)
    source = ServedModel.of(open_folder(path, checkpoint), precision)
    if precision == "int8":
        round_weights(source.model)
    return LoadedModel(source, lite)
