"""LoRA folders of PEFT, merged by hand, and what is refused."""

import json

import numpy as np
import pytest
import safetensors.numpy

from official.conversion import huggingface, peft
from official.conversion.run import convert
from official.saving import model_folder
from official.utils.errors import UserError
from tests.official.conversion import systems

LAYER = "roberta.encoder.layer.0"
QUERY = f"{LAYER}.attention.self.query"
HEAD = "classifier.out_proj"


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def base(tmp_path, name="roberta_classification"):
    """The folder of a model, and its tensors."""
    config, parts, _ = systems.load(name)
    return systems.write(tmp_path / "base", config, parts["weight"]), dict(parts["weight"])


def write(tmp_path, tensors, **config):
    """The folder of an adapter; a module gets A and B of a rank for its shape."""
    folder = tmp_path / "adapter"
    folder.mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "task_type": "SEQ_CLS", "r": 4, "lora_alpha": 8, **config}
    (folder / peft.CONFIG).write_text(json.dumps(config))
    tensors = {f"base_model.model.{name}": array for name, array in tensors.items()}
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def update(module, matrix, rank=4):
    """A [r, I] and B [O, r] for a matrix [O, I]."""
    rows, columns = matrix.shape
    a, b = random(rank, columns), random(rows, rank)
    return {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}, a, b


def same_as(folder, read, tensors, name="roberta_classification", **keys):
    """Asserts that a model equals the one with these tensors."""
    config = systems.load(name)[0] | keys
    right = huggingface.read(systems.write(folder, config, tensors))
    assert right.config.objectives == read.config.objectives
    assert right.variables.keys() == read.variables.keys()
    for path, array in right.variables.items():
        np.testing.assert_allclose(read.variables[path], array, rtol=1e-6, atol=1e-6, err_msg=path)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 2),
        ({"use_rslora": True}, 4),
        ({"lora_alpha": 32}, 8),
        ({"rank_pattern": {"query": 2}, "alpha_pattern": {"query": 16}}, 8),
        ({"rank_pattern": {"ry": 2}, "alpha_pattern": {r"self\.(key|value)": 16}}, 2),
        ({"alpha_pattern": {r"0\.attention\.self\.\w+": 4, "query": 16}}, 1),
    ],
)
def test_factors(settings, expected):
    assert peft.Settings(**{"peft_type": "LORA", "r": 4, **settings}).factor(QUERY) == expected


def test_a_merge_by_hand():
    one, two = np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])
    merged = peft.Update(one, two, 2.0).merged(np.eye(2))
    np.testing.assert_array_equal(merged, [[1 + 6, 12], [8, 1 + 16]])
    # rows [3, 4] and [6, 8] have the norms 5 and 10
    before = np.array([[0.0, -2.0], [2.0, 0.0]])
    merged = peft.Update(one, two, 1.0, np.array([10.0, 5.0])).merged(before)
    np.testing.assert_allclose(merged, [[6, 8], [3, 4]], rtol=1e-15)


def test_updates_biases_and_modules_that_were_saved(tmp_path):
    folder, tensors = base(tmp_path)
    parts, a, b = update(QUERY, tensors[f"{QUERY}.weight"])
    head, bias = random(4, tensors[f"{HEAD}.weight"].shape[1]), random(4)
    key = f"{LAYER}.attention.self.key.bias"
    parts |= {
        f"{HEAD}.weight": head,
        f"{HEAD}.bias": bias,
        f"{HEAD}.modules_to_save.bias": bias,
        f"{HEAD}.original_module.bias": bias + 1,
        f"{QUERY}.base_layer.bias": random(len(b), seed=1),
        key: random(len(b), seed=2),
    }
    adapter = write(tmp_path, parts, bias="all", modules_to_save=["classifier", "score"])
    read = huggingface.read(folder, adapter)
    assert f"{adapter} is merged: updates of 1 modules and 4 other tensors" in read.notes[-1]
    tensors[f"{QUERY}.weight"] = tensors[f"{QUERY}.weight"] + 2 * (b @ a)
    tensors[f"{QUERY}.bias"] = parts[f"{QUERY}.base_layer.bias"]
    tensors |= {key: parts[key], f"{HEAD}.weight": head, f"{HEAD}.bias": bias}
    labels = {str(i): f"LABEL_{i}" for i in range(4)}
    same_as(tmp_path / "right", read, tensors, id2label=labels)


def test_dora_and_the_bias_of_b(tmp_path):
    folder, tensors = base(tmp_path)
    before = tensors[f"{QUERY}.weight"]
    parts, a, b = update(QUERY, before)
    sizes = np.abs(random(len(b))) + 1
    adapter = write(tmp_path, {**parts, f"{QUERY}.lora_magnitude_vector": sizes}, use_dora=True)
    read = huggingface.read(folder, adapter)
    rows = before + 2 * (b @ a)
    turned = [size * row / np.sqrt((row**2).sum()) for size, row in zip(sizes, rows, strict=True)]
    same_as(tmp_path / "dora", read, tensors | {f"{QUERY}.weight": np.stack(turned)})

    adapter = write(tmp_path, {**parts, f"{QUERY}.lora_B.bias": sizes}, lora_bias=True)
    same_as(
        tmp_path / "bias",
        huggingface.read(folder, adapter),
        tensors
        | {
            f"{QUERY}.weight": before + 2 * (b @ a),
            f"{QUERY}.bias": tensors[f"{QUERY}.bias"] + 2 * sizes,
        },
    )


def test_layers_of_gpt_2_are_transposed_and_embeddings_too(tmp_path):
    name = "gpt2_causal_lm"
    folder, tensors = base(tmp_path, name)
    module = "transformer.h.1.mlp.c_proj"
    square = "transformer.h.0.attn.c_proj"
    parts, a, b = update(module, tensors[f"{module}.weight"].T)
    more, c, d = update(square, tensors[f"{square}.weight"].T, rank=2)
    size = tensors["transformer.wpe.weight"].shape
    e, f = random(4, size[0]), random(size[1], 4)
    table = {"transformer.wpe.lora_embedding_A": e, "transformer.wpe.lora_embedding_B": f}
    settings = {"task_type": "CAUSAL_LM", "rank_pattern": {"attn.c_proj": 2}}
    read = huggingface.read(folder, write(tmp_path, {**parts, **more, **table}, **settings))
    tensors[f"{module}.weight"] = tensors[f"{module}.weight"] + 2 * (b @ a).T
    tensors[f"{square}.weight"] = tensors[f"{square}.weight"] + 4 * (d @ c).T
    tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"] + 2 * (f @ e).T
    same_as(tmp_path / "right", read, tensors, name)


def test_the_head_of_pretraining_is_left_out(tmp_path):
    """An adapter of the bare class has names without a prefix."""
    folder, tensors = base(tmp_path, "roberta_masked_lm")
    parts, a, b = update(QUERY.removeprefix("roberta."), tensors[f"{QUERY}.weight"])
    read = huggingface.read(folder, write(tmp_path, parts, task_type="FEATURE_EXTRACTION"))
    assert read.config.objectives == () and read.leftover == []
    plain = huggingface.read(folder)
    assert [each.type for each in plain.config.objectives] == ["masked_lm"]
    before = tensors[f"{QUERY}.weight"]
    (path,) = [p for p, v in read.variables.items() if (v != plain.variables[p]).any()]
    ours = read.variables[path][:, : len(b)]
    np.testing.assert_allclose(ours, (before + 2 * (b @ a)).T, rtol=0, atol=1e-6)


def test_a_folder_of_sentence_transformers(tmp_path):
    folder, tensors = base(tmp_path, "roberta_masked_lm")
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    width = tensors[f"{QUERY}.weight"].shape[1]
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    parts, a, b = update(QUERY.removeprefix("roberta."), tensors[f"{QUERY}.weight"])
    adapter = write(tmp_path, parts, task_type="FEATURE_EXTRACTION")
    read, plain = huggingface.read(folder, adapter), huggingface.read(folder)
    assert read.embedding == plain.embedding and read.embedding.pooling == ("mean",)
    (path,) = [p for p, v in read.variables.items() if (v != plain.variables[p]).any()]
    moved = (read.variables[path] - plain.variables[path])[:, : len(b)]
    np.testing.assert_allclose(moved, 2 * (b @ a).T, rtol=0, atol=1e-5)

    static = tmp_path / "static"
    static.mkdir()
    (static / "config.json").write_text(json.dumps({"model_type": "model2vec"}))
    with pytest.raises(UserError, match="static has static vectors, which have no adapters"):
        huggingface.read(static, adapter)


def test_by_the_command(tmp_path):
    folder, tensors = base(tmp_path)
    parts, a, b = update(QUERY, tensors[f"{QUERY}.weight"])
    lines = []
    adapter = write(tmp_path, parts, base_model_name_or_path="some/base")
    convert(folder, tmp_path / "model", source="hf", adapter=adapter, report=lines.append)
    assert any("updates of 1 modules" in x and "names the base some/base" in x for x in lines)
    read = huggingface.read(folder, adapter).variables
    restored = model_folder.restore(tmp_path / "model")[2].variables_by_path()
    for path, variable in restored.items():
        np.testing.assert_array_equal(variable, read[path], err_msg=path)
    with pytest.raises(UserError, match="--adapter: only supported with --source=hf: remove it"):
        convert(folder, tmp_path / "other", target="hf", adapter=adapter)
    with pytest.raises(
        UserError, match="adapter is an adapter of PEFT: make a model of it and its ba"
    ):
        convert(adapter, tmp_path / "other", source="hf")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"peft_type": "IA3"},
            r"peft_type: 'IA3' is not supported \(known: 'LORA'\): merge it whe",
        ),
        ({"task_type": "REWARD"}, "task_type: 'REWARD' is not supported .* 'SEQ_CLS', .* merge it"),
        (
            {"task_type": "CAUSAL_LM"},
            "task_type: 'CAUSAL_LM': a RoBERTa has no such head here: mer",
        ),
        ({"bias": "some"}, "bias: 'some' is not supported .*'none', 'lora_only', 'all'"),
        (
            {"init_lora_weights": "pissa"},
            "init_lora_weights: 'pissa' is not supported .*: merge it",
        ),
        ({"use_qalora": True}, "use_qalora: True is not supported: merge it where it was trained"),
        ({"target_parameters": ["w"]}, r"target_parameters: \['w'\] is not supported: merge it"),
        ({"layer_replication": [[0, 2]]}, r"layer_replication: \[\[0, 2\]\] is not supported: me"),
        ({"trainable_token_indices": [3]}, r"trainable_token_indices: \[3\] is not supported: m"),
        ({"of_the_future": 1}, "adapter_config.json: of_the_future: 1 is not supported: merge it"),
        ({"r": 0}, "adapter_config.json: r: 0 is less than 1"),
        ({"r": "four"}, "adapter_config.json: r: expected a whole number, got"),
        ({"rank_pattern": {"query": 0}}, "rank_pattern: query: 0 is less than 1"),
        ({"alpha_pattern": {"(": 3}}, r"alpha_pattern: '\(' is not a regular expression"),
        ({"r": 3}, "query has A .4, .* but adapter_config.json says rank 3: copy both files"),
        ({"use_dora": True}, "lacks .*query.lora_magnitude_vector, unlike .*config.json says"),
        ({"lora_bias": True}, "lacks .*query.lora_B.bias, unlike what adapter_config.json says"),
    ],
)
def test_settings_that_are_refused(tmp_path, settings, words):
    folder, tensors = base(tmp_path)
    parts, _, _ = update(QUERY, tensors[f"{QUERY}.weight"])
    with pytest.raises(UserError, match=words):
        huggingface.read(folder, write(tmp_path, parts, **settings))


def test_tensors_that_are_refused(tmp_path):
    folder, tensors = base(tmp_path)
    right, a, b = update(QUERY, tensors[f"{QUERY}.weight"])

    def refused(words, more, settings=None, parts=right):
        with pytest.raises(UserError, match=words):
            huggingface.read(folder, write(tmp_path, {**parts, **more}, **(settings or {})))

    other, _, _ = update(f"{LAYER.replace('0', '7')}.output.dense", np.zeros((3, 5)))
    refused(
        "base.*safetensors has no tensor roberta.encoder.layer.7.output.dense.weight: convert the "
        "adapter with the base that it was trained on, 'large'",
        other,
        {"base_model_name_or_path": "large"},
    )
    wide, _, _ = update(QUERY, np.zeros((len(b) + 1, a.shape[1])))
    refused(
        "the update of .*query.weight has the shape .* but in .* it is .*: convert", {}, parts=wide
    )
    refused("has no updates .lora_A, lora_B.: save", {f"{HEAD}.bias": random(2)}, parts={})
    refused("lacks .*query.lora_B.weight", {}, parts={f"{QUERY}.lora_A.weight": a})
    refused(
        "has .*query.lora_magnitude_vector, unlike", {f"{QUERY}.lora_magnitude_vector": b[:, 0]}
    )
    refused(
        r"lora_magnitude_vector has the shape \[2\], expected",
        {f"{QUERY}.lora_magnitude_vector": random(2)},
        {"use_dora": True},
    )
    refused(
        "tensor .*query.lora_C.weight is not supported: merge it", {f"{QUERY}.lora_C.weight": a}
    )
    name = f"{LAYER}.output.dense.weight"
    huggingface.read(folder, write(tmp_path, {**right, name: tensors[name]}))
    refused(
        "tensor .*output.dense.weight differs from that of .*neither modules_to_save nor bias",
        {name: tensors[name] + 1},
    )
    refused("has no tensor roberta.nothing.weight", {"roberta.nothing.weight": a})
    refused("query.lora_A.weight contains NaN", {f"{QUERY}.lora_A.weight": a * np.nan})
    conv = {f"{QUERY}.lora_A.weight": a[..., None], f"{QUERY}.lora_B.weight": b[..., None]}
    refused("is neither a linear layer nor an embedding", {}, parts=conv)
    wrong = {f"{HEAD}.bias": random(2), f"{HEAD}.modules_to_save.bias": random(2, seed=1)}
    refused("classifier.out_proj.modules_to_save.bias is not supported", wrong, {"bias": "all"})


def test_modules_that_the_model_here_does_not_have(tmp_path):
    folder, tensors = base(tmp_path)
    parts, _, _ = update(QUERY, tensors[f"{QUERY}.weight"])
    extra, _, _ = update("projector", np.zeros((3, 5)))
    tensors["projector.weight"] = random(3, 5)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    huggingface.read(folder, write(tmp_path, parts))
    with pytest.raises(UserError, match="changes projector.weight, which the model here does not"):
        huggingface.read(folder, write(tmp_path, {**parts, **extra}))


def test_tied_tables(tmp_path):
    folder, tensors = base(tmp_path, "roberta_masked_lm")
    words = "roberta.embeddings.word_embeddings"
    size, width = tensors[f"{words}.weight"].shape
    table = {f"{words}.lora_embedding_A": random(4, size)}
    table |= {f"{words}.lora_embedding_B": random(width, 4)}
    with pytest.raises(
        UserError, match="changes roberta.embeddings.word_embeddings.weight, to whi"
    ):
        huggingface.read(folder, write(tmp_path, table, task_type=None))
    decoder, _, _ = update("lm_head.decoder", tensors[f"{words}.weight"])
    with pytest.raises(
        UserError, match="lm_head.decoder is tied to roberta.embeddings.word_embedd"
    ):
        huggingface.read(folder, write(tmp_path, decoder, task_type=None))


def test_a_head_that_no_file_has(tmp_path):
    folder, tensors = base(tmp_path, "roberta_masked_lm")
    parts, _, _ = update(QUERY, tensors[f"{QUERY}.weight"])
    words = "neither .* nor .* has classifier.out_proj.weight: it was random when .*'classifier.out"
    with pytest.raises(UserError, match=words):
        huggingface.read(folder, write(tmp_path, parts))
    hidden = tensors[f"{QUERY}.weight"].shape[1]
    head = {f"{HEAD}.weight": random(2, hidden), f"{HEAD}.bias": random(2)}
    head |= {
        "classifier.dense.weight": random(hidden, hidden),
        "classifier.dense.bias": random(hidden),
    }
    saved = {"modules_to_save": ["classifier"]}
    read = huggingface.read(folder, write(tmp_path, {**parts, **head}, **saved))
    (objective,) = read.config.objectives
    assert objective.labels == ("LABEL_0", "LABEL_1")
    np.testing.assert_array_equal(
        read.variables["classification/output/kernel"].T, head[f"{HEAD}.weight"]
    )
    wide = {**head, f"{HEAD}.weight": random(2, hidden + 1)}
    words = (
        "base.*with .*adapter_model.safetensors: tensor classifier.out_proj.weight has the shape"
    )
    with pytest.raises(UserError, match=words):
        huggingface.read(folder, write(tmp_path, {**parts, **wide}, **saved))
