"""Runs tasks of MTEB on local data; `test_mteb_parity.py` starts it.

    python mteb_tasks.py MODEL_DIR DATA

DATA is a JSON file with `pairs` (text, text, score), `queries`, `documents` (title, text) and
`qrels`. Prints the scores, what mteb says about the model, and its names of prompts.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import official  # noqa: E402

# TensorFlow is imported before PyTorch, which mteb imports: the other order ends the process.
model = official.load(sys.argv[1]).for_mteb()

import mteb  # noqa: E402
from datasets import Dataset, DatasetDict  # noqa: E402
from mteb.abstasks.retrieval import AbsTaskRetrieval  # noqa: E402
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData  # noqa: E402
from mteb.abstasks.sts import AbsTaskSTS  # noqa: E402
from mteb.abstasks.task_metadata import TaskMetadata  # noqa: E402
from mteb.models.abs_encoder import get_prompt_name  # noqa: E402
from mteb.models.models_protocols import EncoderProtocol  # noqa: E402
from mteb.types import PromptType  # noqa: E402

DATA = json.loads(Path(sys.argv[2]).read_text())


def described(name, kind, score):
    return TaskMetadata(
        name=name,
        type=kind,
        main_score=score,
        description="Local data.",
        reference="https://example.org",
        dataset={"path": "local", "revision": "1"},
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        date=("2020-01-01", "2020-01-02"),
        dialect=[],
        domains=[],
        task_subtypes=[],
        license="cc-by-4.0",
        annotations_creators="derived",
        modalities=["text"],
        sample_creation="found",
        bibtex_citation="",
    )


class LocalSTS(AbsTaskSTS):
    metadata = described("LocalSTS", "STS", "cosine_spearman")
    min_score, max_score = 0, 5

    def load_data(self, num_proc=None, **kwargs):
        first, second, scores = zip(*DATA["pairs"], strict=True)
        columns = {"sentence1": first, "sentence2": second, "score": scores}
        self.dataset = DatasetDict(test=Dataset.from_dict(columns))
        self.data_loaded = True


class LocalRetrieval(AbsTaskRetrieval):
    metadata = described("LocalRetrieval", "Retrieval", "ndcg_at_10")

    def load_data(self, num_proc=None, **kwargs):
        corpus = [{"id": i, "title": t, "text": x} for i, (t, x) in DATA["documents"].items()]
        queries = [{"id": name, "text": text} for name, text in DATA["queries"].items()]
        data = RetrievalSplitData(
            queries=Dataset.from_list(queries),
            corpus=Dataset.from_list(corpus),
            relevant_docs=DATA["qrels"],
            top_ranked=None,
        )
        self.dataset = {"default": {"test": data}}
        self.data_loaded = True


assert isinstance(model, EncoderProtocol)
results = mteb.evaluate(model, [LocalSTS(), LocalRetrieval()], cache=None)
scores = {each.task_name: each.scores["test"][0] for each in results.task_results}
meta = json.loads(model.mteb_model_meta.model_dump_json(exclude={"loader"}))
prompts = dict.fromkeys(
    ("LocalSTS-query", "LocalSTS", "STS-document", "STS", "Retrieval-query", "document"), ""
)
object.__setattr__(model._embedder.settings, "prompts", prompts)
names = []
for task in (LocalSTS.metadata, LocalRetrieval.metadata):
    for kind in (PromptType.query, PromptType.document, None):
        theirs = get_prompt_name(prompts, task, kind)
        names.append([model.prompt_name(task.name, task.type, kind), theirs])
print(json.dumps({"scores": scores, "meta": meta, "prompts": names}))
