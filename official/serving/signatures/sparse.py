"""Words and weights of texts, of a model with the objective `sparse_embedding`.

  embed_sparse               text string [B]
  embed_sparse_tokens        ids as of `tokens`
  embed_sparse_query         text string [B], of a model with a table of queries
  embed_sparse_query_tokens  ids as of `tokens`

Outputs:

  word_ids  the words of each text by their ids, the largest in size first: int32 [B, K]
  weights   their weights, float32 [B, K]; 0 after the last word of a text

Shapes: B batch, K words of the text with the most, or `max_active_dims` of embedding.json.
"""

from official.serving.compute.sparse_reader import QUERY, SparseReader, strongest
from official.serving.signatures import inputs
from official.tokenizers.pair_packing import pack_texts

NAME = "embed_sparse"
# The signatures that take ids.
TOKENS = (f"{NAME}_tokens", f"{NAME}_query_tokens")


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures."""
    found = _of(context, NAME, SparseReader(context))
    query = SparseReader(context, QUERY)
    return found | _of(context, f"{NAME}_query", query) if query.by_table else found


def _of(
    context: inputs.ServingContext, name: str, reader: SparseReader
) -> dict[str, inputs.Signature]:
    """Returns the two signatures of a kind of texts."""

    def vectors(batch):
        with context.weights.read():
            return {"vectors": reader.vectors(batch)}

    def words(batch):
        found = scored(batch)["vectors"]
        ids, weights = strongest(found, context.embedding.max_active_dims)
        return {"word_ids": ids, "weights": weights}

    def embed(text):
        texts = reader.before + text if reader.before else text
        length = context.embedding.max_length or context.max_length
        layout = context.config.encoder.text_layout
        return words(pack_texts([texts], context.tokenizer, length, layout))

    scored = context.scorer(vectors)
    return {
        name: inputs.signature(embed, *inputs.texts("text")),
        f"{name}_tokens": inputs.of_ids(context, words),
    }
