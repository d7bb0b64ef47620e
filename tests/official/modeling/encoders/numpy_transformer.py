"""The transformer encoder in plain NumPy and float64, one example at a time, from its papers."""

import math

import numpy as np


def encode(config, variables, token_ids, segment_ids, allowed):
    """All hidden states of one example.

    Args:
        config: the encoder's `Config`.
        variables: NumPy arrays by path below `encoder/`.
        token_ids: [T].
        segment_ids: [T].
        allowed: bool [T, T], which positions (columns) each position (rows) attends to.
    """
    v = {path: np.asarray(value, "float64") for path, value in variables.items()}
    length = len(token_ids)

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

    def attention(x, name):
        q, k, val = np.split(affine(x, f"{name}/query_key_value"), 3, axis=-1)
        size = config.hidden_size // config.num_heads
        out = np.zeros_like(x)
        for n in range(config.num_heads):
            head = slice(n * size, (n + 1) * size)
            for t in range(length):
                scores = np.full(length, -np.inf)
                for s in range(length):
                    if allowed[t, s]:
                        scores[s] = q[t, head] @ k[s, head] / math.sqrt(size)
                weights = np.exp(scores - scores.max())
                out[t, head] = weights @ val[:, head] / weights.sum()
        return affine(out, f"{name}/output")

    def feed_forward(x, name):
        return affine(activation(affine(x, f"{name}/inner")), f"{name}/outer")

    def position(t):
        if config.positions == "learned":
            return v["embeddings/position_embedding/table"][t]
        size = config.embedding_size or config.hidden_size
        row = np.zeros(size)
        if config.positions == "sinusoidal":
            for i in range(size // 2):
                row[2 * i] = math.sin(t / 10000 ** (2 * i / size))
                row[2 * i + 1] = math.cos(t / 10000 ** (2 * i / size))
        return row

    table = v["embeddings/token_embedding/table"]
    x = np.stack(
        [
            table[token] * (math.sqrt(table.shape[1]) if config.scale_embeddings else 1)
            + position(t + config.position_offset)
            + (v["embeddings/segment_embedding/table"][s] if config.segment_types else 0)
            for t, (token, s) in enumerate(zip(token_ids, segment_ids, strict=True))
        ]
    )
    pre = config.norm == "pre"
    if not pre:
        x = norm(x, "embeddings/norm")
    if config.embedding_size not in (None, config.hidden_size):
        x = affine(x, "embeddings/projection")
    states = [x]
    for i in range(config.num_layers):
        for j in range(config.inner_layers):
            name = f"layer_{i}"
            if config.layer_groups:
                name = f"group_{int(i / config.num_layers * config.layer_groups)}_layer_{j}"
            if pre:
                x = x + attention(norm(x, f"{name}/attention_norm"), f"{name}/attention")
                x = x + feed_forward(norm(x, f"{name}/feed_forward_norm"), f"{name}/feed_forward")
            else:
                x = norm(x + attention(x, f"{name}/attention"), f"{name}/attention_norm")
                x = norm(x + feed_forward(x, f"{name}/feed_forward"), f"{name}/feed_forward_norm")
            states.append(x)
    if pre:
        states[-1] = norm(x, "final_norm")
    return states
