"""The content stream and the query stream: what their rows see, and how they go through layers.

The *content stream* reads the tokens. The *query stream* has a row for each token that is to be
predicted: it starts from one vector that is the same for all, knows its place, and sees what the
order of prediction allows, never its own token (Yang et al. 2019, section 2.3).

Shapes: B batch, T content rows, P query rows, Q rows of a stream, S keys, M memory, N heads,
D hidden, L layers.
"""

from keras import ops

from official.modeling import masks
from official.modeling.layers.relative_attention import Stream
from official.utils.errors import UserError

# Segments have numbers below this.
SEGMENTS = 8


def make_streams(
    length,
    *,
    causal=False,
    attention_window=0,
    segment_ids=None,
    attention_mask=None,
    memory_mask=None,
    permutation_mask=None,
    query_positions=None,
    dtype,
):
    """The streams of a batch.

    Args:
        length: T.
        causal: whether a position sees itself, what stands before it and the memory only.
        attention_window: how many keys it then sees at most, itself counted; 0 = all.
        segment_ids: int [B, T]; None = all are of one segment.
        attention_mask: bool, broadcastable to [B, N, T, T]; None = all may be seen.
        memory_mask: bool [B, M]; None = there is no memory.
        permutation_mask: bool [B, T, T]; None = all may be seen.
        query_positions: int [B, P]; None = there is no query stream.
        dtype: of the segments' vectors.

    Returns:
        One `Stream`, or two, that of the queries second.
    """
    remembered = 0 if memory_mask is None else ops.shape(memory_mask)[1]

    def keys(mask):
        if memory_mask is None:
            return mask
        return masks.after_memory(mask, memory_mask, length)

    before = (
        masks.causal(length, remembered + length, attention_window=attention_window)
        if causal
        else None
    )
    seen = None if permutation_mask is None else masks.permutation(permutation_mask)
    content = Stream(
        length,
        masks.combine(keys(masks.combine(attention_mask, seen)), before),
        one_hot_segments(segment_ids, dtype=dtype),
    )
    if query_positions is None:
        return [content]
    allowed = ops.cast(permutation_mask, "bool")[:, None]
    query_mask = masks.combine(
        keys(
            masks.combine(
                masks.rows(attention_mask, query_positions), masks.rows(allowed, query_positions)
            )
        ),
        masks.rows(before, query_positions),
    )
    query_positions = ops.cast(query_positions, "int32")
    if segment_ids is not None:
        segment_ids = ops.take_along_axis(segment_ids, query_positions, axis=1)
    query = Stream(
        ops.shape(query_positions)[1],
        query_mask,
        one_hot_segments(segment_ids, dtype=dtype),
        length - query_positions,
    )
    return [content, query]


def check(config, permutation_mask, query_positions):
    """Raises UserError where there are query rows and the encoder has none, or no order."""
    if query_positions is None:
        return
    if not config.query_stream:
        raise UserError("query_positions: given, and encoder.query_stream is false: set it")
    if permutation_mask is None:
        raise UserError(
            "query_positions: given without permutation_mask, so that each query would see its "
            "own token: give both"
        )


def one_hot_segments(ids, memory=0, *, dtype):
    """One-hot vectors of ids [B, T], with those of a memory before them; None stays None."""
    if ids is None:
        return None
    ids = ops.pad(ids, [[0, 0], [memory, 0]]) if memory else ids
    return ops.one_hot(ids, SEGMENTS, dtype=dtype)


def run(blocks, x, streams, *, memory=None, **how):
    """Takes the rows of all streams through all layers.

    Args:
        blocks: L blocks of relative attention.
        x: [B, T + P, D].
        streams: as `of` gives them.
        memory: [B, L, M, D], or None.
        **how: further arguments of every block.

    Returns:
        What each block reads, L tensors [B, T + P, D]; what the last one gives, a tensor
        [B, Q, D] for each stream; the attention weights of each block, L tuples with a tensor
        [B, N, Q, S] for each stream.
    """
    length, *queries = (stream.length for stream in streams)
    inputs, attentions = [], []
    for i, block in enumerate(blocks):
        inputs.append(x)
        options = {**how, "memory": None if memory is None else memory[:, i]}
        if not queries:
            x, weights, _ = block(x, streams=streams, **options)
            parts = [x]
        elif i + 1 < len(blocks):
            content, _ = ops.split(x, [length], axis=1)
            x, weights, _ = block(x, streams=streams, content=content, **options)
        else:
            # Apart, so that a graph that asks for one of them leaves the other out.
            content, query = ops.split(x, [length], axis=1)
            done = [
                block(rows, streams=[stream], content=content, **options)
                for rows, stream in zip((content, query), streams, strict=True)
            ]
            parts = [rows for rows, _, _ in done]
            weights = tuple(attended[0] for _, attended, _ in done)
        attentions.append(weights)
    return inputs, parts, attentions


def states(inputs, outputs, attentions, length):
    """The states and attention weights of all layers, by the names of the encoder's outputs.

    Args:
        inputs: what each block reads, L tensors [B, T + P, D].
        outputs: dict with `sequence_output` and, where there is a query stream, `query_output`.
        attentions: the weights of each block, as from `run`.
        length: T.

    Returns:
        dict with `hidden_states` and `attentions`, and with `query_states` and `query_attentions`
        where there is a query stream.
    """
    content = [rows[:, :length] for rows in inputs]
    found = {
        "hidden_states": (*content, outputs["sequence_output"]),
        "attentions": tuple(weights[0] for weights in attentions),
    }
    if "query_output" in outputs:
        queries = [rows[:, length:] for rows in inputs]
        found["query_states"] = (*queries, outputs["query_output"])
        found["query_attentions"] = tuple(weights[1] for weights in attentions)
    return found
