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
        return x @ v[f"{name}/kernel"] + (v[f"{name}/bias"] if config.use_bias else 0)

    def norm(x, name):
        out = np.empty_like(x)
        for t, row in enumerate(x):
            centred = row if config.norm_type == "rms" else row - row.mean()
            out[t] = centred / math.sqrt(sum(centred**2) / len(row) + config.norm_epsilon)
        offset = config.norm_bias and config.norm_type == "layer"
        return out * v[f"{name}/scale"] + (v[f"{name}/offset"] if offset else 0)

    def activation(x):
        if config.activation == "relu":
            return np.maximum(x, 0)
        if config.activation == "gelu":
            return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        if config.activation == "silu":
            return x / (1 + np.exp(-x))
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    far = config.disentangled
    relative = None
    if far is not None:
        relative = v["distance_table/table"]
        relative = norm(relative, "distance_table/norm") if far.norm else relative

    def distance_row(distance):
        """The bucket of a distance as the release counts it, and 0 for the farthest to the left."""
        if not far.buckets:
            return min(max(distance + far.max_distance, 0), 2 * far.max_distance - 1)
        middle, last = far.buckets // 2, far.max_distance - 1
        distance = min(max(distance, -last), last)
        if abs(distance) <= middle:
            return far.buckets + distance
        ratio = math.log(abs(distance) / middle) / math.log(last / middle)
        bucket = middle + math.ceil(ratio * (middle - 1))
        return far.buckets + (bucket if distance > 0 else -bucket)

    def turned(rows, theta):
        out = np.zeros_like(rows)
        half = rows.shape[1] // 2
        for t, row in enumerate(rows):
            for i in range(half):
                angle = t / theta ** (2 * i / (2 * half))
                point = complex(row[i], row[i + half])
                point *= complex(math.cos(angle), math.sin(angle))
                out[t, i], out[t, i + half] = point.real, point.imag
        return out

    def attention(x, name, depth):
        size = config.hidden_size // config.num_heads
        terms = 1 if far is None else 3
        if config.num_key_value_heads not in (None, config.num_heads):
            q = affine(x, f"{name}/query")
            k, val = np.split(affine(x, f"{name}/key_value"), 2, axis=-1)
            # Head n of the queries reads head n // (N / K) of the others.
            heads = np.arange(config.num_heads) * config.num_key_value_heads // config.num_heads
            columns = (heads[:, None] * size + np.arange(size)).reshape(-1)
            k, val = k[:, columns], val[:, columns]
        elif far is None or not far.own_projections:
            q, k, val = np.split(affine(x, f"{name}/query_key_value"), 3, axis=-1)
        else:
            q, k, val = np.split(x @ v[f"{name}/query_key_value/kernel"], 3, axis=-1)
            bias = np.split(v[f"{name}/query_key_value/bias"], 2)
            q, val = q + bias[0], val + bias[1]
        if far is not None and far.own_projections:
            of_key = relative @ v[f"{name}/distance_key/kernel"]
            of_query = affine(relative, f"{name}/distance_query")
        elif far is not None:
            of_query, of_key, _ = np.split(affine(relative, f"{name}/query_key_value"), 3, axis=-1)
        out = np.zeros_like(x)
        theta, reach, local = config.rotary_theta, length, config.local_attention
        if local is not None and depth % local.global_every != 0:
            theta, reach = local.theta, local.window // 2
        for n in range(config.num_heads):
            head = slice(n * size, (n + 1) * size)
            if config.positions == "rotary":
                q[:, head], k[:, head] = turned(q[:, head], theta), turned(k[:, head], theta)
            for t in range(length):
                scores = np.full(length, -np.inf)
                for s in range(length):
                    if allowed[t, s] and abs(t - s) <= reach:
                        scores[s] = q[t, head] @ k[s, head]
                        if config.positions.startswith("relative_key"):
                            vector = v[f"{name}/distance_embedding/table"]
                            vector = vector[t - s + config.max_positions - 1]
                            scores[s] += q[t, head] @ vector
                            if config.positions == "relative_key_query":
                                scores[s] += k[s, head] @ vector
                        if far is not None:
                            row = distance_row(t - s)
                            scores[s] += q[t, head] @ of_key[row, head]
                            scores[s] += k[s, head] @ of_query[row, head]
                        scores[s] /= math.sqrt(terms * size)
                if not np.isfinite(scores).any():
                    scores[t] = 0.0  # of padding that is far from tokens
                weights = np.exp(scores - scores.max())
                out[t, head] = weights @ val[:, head] / weights.sum()
        return affine(out, f"{name}/output")

    def convolution(x):
        """The sum over the tokens beside each one that it may attend to."""
        width = config.convolution.kernel_size
        kernel = v["convolution/taps/kernel"].reshape(width, config.hidden_size, -1)
        out = np.tile(v["convolution/taps/bias"], (length, 1))
        for t in range(length):
            for w in range(width):
                s = t + w - width // 2
                if 0 <= s < length and allowed[t, s]:
                    out[t] += x[s] @ kernel[w]
        return np.tanh(out) if config.convolution.activation == "tanh" else activation(out)

    def feed_forward(x, name):
        if config.gated:
            hidden = activation(affine(x, f"{name}/gate")) * affine(x, f"{name}/inner")
            return affine(hidden, f"{name}/outer")
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
    if config.embeddings.norm is not None:
        x = norm(x, "embeddings/norm")
    if config.embedding_size not in (None, config.hidden_size):
        x = affine(x, "embeddings/projection")
    states, depth = [x], 0
    for i in range(config.num_layers):
        for j in range(config.inner_layers):
            name = f"layer_{i}"
            if config.layer_groups:
                name = f"group_{int(i / config.num_layers * config.layer_groups)}_layer_{j}"
            if pre:
                first = depth > 0 or config.first_norm
                before = norm(x, f"{name}/attention_norm") if first else x
                x = x + attention(before, f"{name}/attention", depth)
                x = x + feed_forward(norm(x, f"{name}/feed_forward_norm"), f"{name}/feed_forward")
            else:
                x = norm(x + attention(x, f"{name}/attention", depth), f"{name}/attention_norm")
                x = norm(x + feed_forward(x, f"{name}/feed_forward"), f"{name}/feed_forward_norm")
            if len(states) == 1 and config.convolution is not None:
                x = norm(x + convolution(states[0]), "convolution/norm")
            states.append(x)
            depth += 1
    if pre:
        states[-1] = norm(x, "final_norm")
    return states
