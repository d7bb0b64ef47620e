"""The content stream and the query stream: their masks, and how layers process their rows.

The *content stream* reads the tokens. The *query stream* has a row for each token to predict. Every
such row starts from the same vector, has a position, and attends to the tokens that the permutation
order allows, never to its own token (Yang et al. 2019, section 2.3).

Shapes: B batch, T content rows, P query rows, Q rows of a stream, S keys, M memory, N heads,
D hidden, L layers.
"""

from keras import ops

from official.modeling import masks
from official.modeling.layers.relative_attention import Stream, by_stream
from official.utils.errors import UserError

# Segment ids are below this number.
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
    """Returns the streams of a batch.

    Args:
        length: T.
        causal: whether a position attends to itself, to earlier positions and the memory only.
        attention_window: how many keys it then attends to at most, itself included; 0 = all.
        segment_ids: int [B, T]; None = all positions are in one segment.
        attention_mask: bool, broadcastable to [B, N, T, T]; None = all.
        memory_mask: bool [B, M]; None = there is no memory.
        permutation_mask: bool [B, T, T]; None = all.
        query_positions: int [B, P]; None = there is no query stream.
        dtype: dtype of the one-hot segments.

    Returns:
        The `Stream` of the content, and if there are queries that of the queries.
    """
    earlier = None
    if causal:
        remembered = 0 if memory_mask is None else ops.shape(memory_mask)[1]
        earlier = masks.causal(length, remembered + length, attention_window=attention_window)
    order = None if permutation_mask is None else masks.permutation(permutation_mask)
    keys = _with_memory(masks.combine(attention_mask, order), memory_mask, length)
    content = Stream(masks.combine(keys, earlier), one_hot_segments(segment_ids, dtype=dtype))
    if query_positions is None:
        return [content]
    order = masks.rows(ops.cast(permutation_mask, "bool")[:, None], query_positions)
    keys = masks.combine(masks.rows(attention_mask, query_positions), order)
    keys = _with_memory(keys, memory_mask, length)
    mask = masks.combine(keys, masks.rows(earlier, query_positions))
    return [content, _query_stream(length, query_positions, mask, segment_ids, dtype)]


def _with_memory(mask, memory_mask, length):
    """Returns a mask with the keys of the memory, if there is one, before the others."""
    return mask if memory_mask is None else masks.after_memory(mask, memory_mask, length)


def _query_stream(length, positions, mask, segment_ids, dtype):
    positions = ops.cast(positions, "int32")
    if segment_ids is not None:
        segment_ids = ops.take_along_axis(segment_ids, positions, axis=1)
    segments = one_hot_segments(segment_ids, dtype=dtype)
    return Stream(mask, segments, length - positions)


def check(config, permutation_mask, query_positions):
    """Raises UserError if query rows are asked of an encoder without them, or without an order."""
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
    """Returns ids [B, T] as one-hot vectors [B, M + T, 8]; the M slots of a memory have id 0.

    None stays None.
    """
    if ids is None:
        return None
    ids = ops.pad(ids, [[0, 0], [memory, 0]]) if memory else ids
    return ops.one_hot(ids, SEGMENTS, dtype=dtype)


def run(blocks, x, streams, *, memory=None, **options):
    """Runs all layers on the rows of all streams.

    Args:
        blocks: L blocks of relative attention.
        x: [B, T + P, D].
        streams: as `make_streams` returns them.
        memory: [B, L, M, D], or None.
        **options: further arguments of every block.

    Returns:
        The inputs of the blocks, L tensors [B, T + P, D]; the outputs of the last block, a tensor
        [B, Q, D] for each stream; the attention weights of each block, L tuples with a tensor
        [B, N, Q, S] for each stream.
    """
    inputs, attentions = [], []
    for i, block in enumerate(blocks):
        inputs.append(x)
        options["memory"] = None if memory is None else memory[:, i]
        if len(streams) == 1:
            x, weights, _ = block(x, streams=streams, **options)
            parts = [x]
        elif i + 1 < len(blocks):
            content, _ = by_stream(x, streams, axis=1)
            x, weights, _ = block(x, streams=streams, content=content, **options)
        else:
            # Separate calls, so that a graph that needs one output leaves the other out.
            content, query = by_stream(x, streams, axis=1)
            results = [
                block(rows, streams=[stream], content=content, **options)
                for rows, stream in zip((content, query), streams, strict=True)
            ]
            parts = [rows for rows, _, _ in results]
            weights = tuple(stream_weights[0] for _, stream_weights, _ in results)
        attentions.append(weights)
    return inputs, parts, attentions


def states(inputs, outputs, attentions, length):
    """Returns the states and attention weights of all layers by the names of the outputs.

    Args:
        inputs: the inputs of the blocks, L tensors [B, T + P, D].
        outputs: dict with `sequence_output` and, if there is a query stream, `query_output`.
        attentions: the weights of each block, as `run` returns them.
        length: T.

    Returns:
        dict with `hidden_states` and `attentions`, and if there is a query stream with
        `query_states` and `query_attentions`.
    """
    content = [rows[:, :length] for rows in inputs]
    result = {
        "hidden_states": (*content, outputs["sequence_output"]),
        "attentions": tuple(weights[0] for weights in attentions),
    }
    if "query_output" in outputs:
        queries = [rows[:, length:] for rows in inputs]
        result["query_states"] = (*queries, outputs["query_output"])
        result["query_attentions"] = tuple(weights[1] for weights in attentions)
    return result
