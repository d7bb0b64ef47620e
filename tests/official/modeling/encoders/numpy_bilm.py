"""The bidirectional language model in numpy, a word and a step at a time."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def word_vector(ids, weights, config):
    """The vector of a word, from its characters [K]."""
    table = np.concatenate([np.zeros((1, config.character_size)), weights["words/table"]])
    characters = table[ids]
    activation = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[config.activation]
    found = []
    for width, number in config.filters:
        kernel = weights[f"words/convolution_{width}/kernel"]
        bias = weights[f"words/convolution_{width}/bias"]
        best = np.full(number, -np.inf)
        for start in range(len(ids) - width + 1):
            value = np.einsum("we,wen->n", characters[start : start + width], kernel) + bias
            best = np.maximum(best, value)
        found.append(activation(best))
    x = np.concatenate(found)
    for i in range(config.highway_layers):
        layer = {
            name: x @ weights[f"words/highway_{i}/{name}/kernel"]
            + weights[f"words/highway_{i}/{name}/bias"]
            for name in ("gate", "transform")
        }
        gate = sigmoid(layer["gate"])
        x = gate * np.maximum(layer["transform"], 0) + (1 - gate) * x
    return x @ weights["words/projection/kernel"] + weights["words/projection/bias"]


def run(vectors, direction, weights, config, states):
    """The layers of a direction for the vectors [T, P] in its order; changes the states (c, m)."""
    layers = [vectors]
    for number in range(config.num_layers):
        kernel, bias, projection = (
            weights[f"{direction}_{number}/{name}"] for name in ("kernel", "bias", "projection")
        )
        c, m = states[number]
        outputs = []
        for x in layers[-1]:
            i, j, f, o = np.split(np.concatenate([x, m]) @ kernel + bias, 4)
            c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
            c = np.clip(c, -config.cell_clip, config.cell_clip)
            m = (sigmoid(o) * np.tanh(c)) @ projection
            m = np.clip(m, -config.projection_clip, config.projection_clip)
            outputs.append(m + x if number and config.skip_connections else m)
        states[number] = c, m
        layers.append(np.array(outputs))
    return layers


def fresh(config):
    """The states of a direction at the start."""
    zeros = np.zeros(config.cell_size), np.zeros(config.projection_size)
    return [zeros] * config.num_layers
