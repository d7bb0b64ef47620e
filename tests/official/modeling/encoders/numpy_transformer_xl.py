"""Transformer-XL with two streams in plain NumPy and float64, one example at a time, by loops."""

import math

import numpy as np


def encode(
    config,
    variables,
    token_ids,
    segment_ids,
    content_allowed,
    memory=None,
    backward=False,
    places=(),
    query_allowed=None,
):
    """All states of one example.

    Args:
        config: the encoder's `Config`.
        variables: NumPy arrays by path below `encoder/`.
        token_ids: [T].
        segment_ids: [T].
        content_allowed: bool [T, M + T], which keys each position attends to.
        memory: [L, M, D], or None where M is 0.
        backward: whether distances count the other way.
        places: P positions that the query stream is for.
        query_allowed: bool [P, M + T].

    Returns:
        The states [T, D] of the content stream, those [P, D] of the query stream: L + 1 each.
    """
    v = {path: np.asarray(value, "float64") for path, value in variables.items()}
    length, size = len(token_ids), config.hidden_size
    if memory is None:
        memory = np.zeros((config.num_layers, 0, size))
    slots = memory.shape[1]
    head_size = config.head_size or size // config.num_heads
    segments = [0] * slots + list(segment_ids)

    def affine(x, name):
        return x @ v[f"{name}/kernel"] + v[f"{name}/bias"]

    def norm(x, name):
        out = np.empty_like(x)
        for t, row in enumerate(x):
            variance = sum((row - row.mean()) ** 2) / len(row)
            out[t] = (row - row.mean()) / math.sqrt(variance + config.norm_epsilon)
        return out * v[f"{name}/scale"] + v[f"{name}/offset"]

    def activation(x):
        if config.activation == "relu":
            return np.maximum(x, 0)
        if config.activation == "gelu":
            return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def sinusoids(distance):
        if config.clamp_length:
            distance = max(-config.clamp_length, min(config.clamp_length, distance))
        if backward:
            distance = -distance
        angles = [distance / 10000 ** (2 * i / size) for i in range(size // 2)]
        return np.array([*map(math.sin, angles), *map(math.cos, angles)])

    def attention(rows, rows_places, allowed, keys, name):
        own = f"{name}/biases" if config.untie_biases else "biases"
        kernels = np.split(v[f"{name}/query_key_value/kernel"], 3, axis=-1)
        q, k, val = rows @ kernels[0], keys @ kernels[1], keys @ kernels[2]
        out = np.zeros((len(rows), config.num_heads * head_size))
        for n in range(config.num_heads):
            head = slice(n * head_size, (n + 1) * head_size)
            for i, place in enumerate(rows_places):
                scores = np.full(len(keys), -np.inf)
                for j in range(len(keys)):
                    if not allowed[i, j]:
                        continue
                    far = sinusoids(slots + place - j) @ v[f"{name}/position_key/kernel"]
                    scores[j] = (q[i, head] + v[f"{own}/content_bias"][n]) @ k[j, head]
                    scores[j] += (q[i, head] + v[f"{own}/position_bias"][n]) @ far[head]
                    if config.segment_types:
                        other = int(segments[slots + place] != segments[j])
                        vector = v[f"{name}/segment_embedding"][other, n]
                        scores[j] += (q[i, head] + v[f"{own}/segment_bias"][n]) @ vector
                scores /= math.sqrt(head_size)
                if allowed[i].any():
                    weights = np.exp(scores - scores.max())
                    out[i, head] = weights @ val[:, head] / weights.sum()
        return out @ v[f"{name}/output/kernel"]

    def block(rows, rows_places, allowed, keys, name):
        attended = attention(rows, rows_places, allowed, keys, f"{name}/attention")
        x = norm(rows + attended, f"{name}/attention_norm")
        inner = activation(affine(x, f"{name}/feed_forward/inner"))
        return norm(x + affine(inner, f"{name}/feed_forward/outer"), f"{name}/feed_forward_norm")

    content = v["embeddings/token_embedding/table"][np.asarray(token_ids)]
    if config.scale_embeddings:
        content = content * math.sqrt(size)
    query = np.zeros((0, size))
    if len(places):
        query = np.stack([v["embeddings/query_start"]] * len(places))
    states = [(content, query)]
    for i in range(config.num_layers):
        keys = np.concatenate([memory[i], content])
        name = f"layer_{i}"
        if len(places):
            query = block(query, places, query_allowed, keys, name)
        content = block(content, range(length), content_allowed, keys, name)
        states.append((content, query))
    return [state[0] for state in states], [state[1] for state in states]
