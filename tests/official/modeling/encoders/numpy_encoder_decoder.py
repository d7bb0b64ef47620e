"""The encoder-decoder in plain NumPy and float64, one example at a time, from its papers."""

import math

import numpy as np


def run(config, variables, token_ids, decoder_ids, readable):
    """The states of both stacks for one example.

    Args:
        config: `EncoderDecoderConfig`.
        variables: NumPy arrays by path below `encoder/`.
        token_ids: [T].
        decoder_ids: [U].
        readable: bool [T], False for padding.

    Returns:
        [T, D] and [U, D].
    """
    v = {path: np.asarray(value, "float64") for path, value in variables.items()}
    heads = config.num_heads
    size = config.head_size or config.hidden_size // heads

    def affine(x, name):
        y = x @ v[f"{name}/kernel"]
        return y + v[f"{name}/bias"] if config.use_bias else y

    def norm(x, name):
        if config.norm == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        y = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + config.norm_epsilon)
        return y * v[f"{name}/scale"] + (v[f"{name}/offset"] if config.norm == "layer" else 0)

    def feed_forward(x, name):
        inner = affine(x, f"{name}/inner")
        outer = affine(x, f"{name}/gate") if config.gated else inner
        if config.activation == "relu":
            outer = np.maximum(outer, 0)
        else:
            outer = (
                0.5 * outer * (1 + np.tanh(math.sqrt(2 / math.pi) * (outer + 0.044715 * outer**3)))
            )
        return affine(outer * inner if config.gated else outer, f"{name}/outer")

    def attention(q, k, value, name, allowed, bias):
        out = np.zeros((len(q), heads * size))
        for n in range(heads):
            head = slice(n * size, (n + 1) * size)
            for t in range(len(q)):
                scores = np.full(len(k), -np.inf)
                for s in range(len(k)):
                    if allowed(t, s):
                        score = q[t, head] @ k[s, head]
                        if config.scale_scores:
                            score /= math.sqrt(size)
                        scores[s] = score + (bias(n, s - t) if bias else 0)
                weights = np.exp(scores - scores.max())
                out[t, head] = weights @ value[:, head] / weights.sum()
        return affine(out, f"{name}/output")

    def bucket(distance, both):
        count, first = config.relative_buckets, 0
        if both:
            count //= 2
            first = count if distance > 0 else 0
            distance = abs(distance)
        else:
            distance = max(-distance, 0)
        half = count // 2
        if distance < half:
            return first + distance
        share = math.log(distance / half) / math.log(config.relative_max_distance / half)
        return first + min(half + int(share * (count - half)), count - 1)

    def embed(ids):
        x = v["token_embedding/table"][ids]
        if config.scale_embeddings:
            x = x * math.sqrt(config.hidden_size)
        if config.positions == "sinusoidal":
            half = config.hidden_size // 2
            for t in range(len(x)):
                for i in range(half):
                    angle = t / 10000 ** (2 * i / config.hidden_size)
                    x[t, i] += math.sin(angle)
                    x[t, half + i] += math.cos(angle)
        return x

    def stack(x, name, layers, allowed, encoded=None):
        both = encoded is None
        bias = None
        if config.positions == "relative":
            table = v[f"{name}/relative_bias/table"]
            bias = lambda n, distance: table[bucket(distance, both), n]  # noqa: E731
        pre = config.norm_position == "pre"

        def add(x, norm_name, sublayer):
            if pre:
                return x + sublayer(norm(x, norm_name))
            return norm(x + sublayer(x), norm_name)

        for i in range(layers):
            layer = f"{name}/layer_{i}"

            def own(y, layer=layer):
                parts = np.split(affine(y, f"{layer}/attention/query_key_value"), 3, axis=-1)
                return attention(*parts, f"{layer}/attention", allowed, bias)

            def cross(y, layer=layer):
                query = affine(y, f"{layer}/cross_attention/query")
                parts = np.split(affine(encoded, f"{layer}/cross_attention/key_value"), 2, axis=-1)
                mask = lambda t, s: readable[s]  # noqa: E731
                return attention(query, *parts, f"{layer}/cross_attention", mask, None)

            x = add(x, f"{layer}/attention_norm", own)
            if encoded is not None:
                x = add(x, f"{layer}/cross_attention_norm", cross)
            x = add(
                x,
                f"{layer}/feed_forward_norm",
                lambda y, layer=layer: feed_forward(y, f"{layer}/feed_forward"),
            )
        return norm(x, f"{name}/final_norm") if pre else x

    encoded = stack(embed(token_ids), "encoder", config.num_layers, lambda t, s: readable[s])
    decoded = stack(
        embed(decoder_ids), "decoder", config.decoder_layers, lambda t, s: s <= t, encoded
    )
    return encoded, decoded
