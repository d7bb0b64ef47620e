// Reads folders in the layout of the hub by transformers.js: PACKAGE PARENT.
//
// PACKAGE is a folder with `node_modules`. PARENT has `asked.json`: by the names of its folders a
// reader, one of `READERS`, and texts or pairs of texts. It gets `answers.json`.

import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [home, parent] = process.argv.slice(2);
const js = createRequire(path.join(path.resolve(home), "index.js"))("@huggingface/transformers");
js.env.allowRemoteModels = false;
js.env.useFSCache = false;
js.env.localModelPath = path.resolve(parent) + path.sep;

const FULL = { dtype: "fp32" };

async function outputs(kind, folder, rows, options = FULL) {
  const tokenizer = await js.AutoTokenizer.from_pretrained(folder);
  const model = await kind.from_pretrained(folder, options);
  const found = [];
  for (const row of rows) {
    const [text, second] = Array.isArray(row) ? row : [row];
    const text_pair = second === undefined ? null : [second];
    const batch = tokenizer([text], { text_pair, truncation: true });
    const given = await model(batch);
    found.push(Object.fromEntries(Object.entries(given).map(([k, v]) => [k, v.tolist()[0]])));
  }
  return found;
}

async function piped(task, folder, texts, options) {
  const run = await js.pipeline(task, folder, FULL);
  const found = [];
  for (const text of texts) found.push(await run(text, options));
  return found;
}

const READERS = {
  classification: (folder, texts) => piped("text-classification", folder, texts, { top_k: null }),
  tags: (folder, texts) => piped("token-classification", folder, texts, { ignore_labels: [] }),
  masked_lm: (folder, texts) => piped("fill-mask", folder, texts, { top_k: 3 }),
  answer: (folder, pairs) => outputs(js.AutoModelForQuestionAnswering, folder, pairs),
  ranking: (folder, pairs) => outputs(js.AutoModelForSequenceClassification, folder, pairs),
  vectors: async (folder, texts) => {
    const run = await js.pipeline("feature-extraction", folder, FULL);
    // A batch, with padding, whose vectors are pooled outside of the graph, and one text at a time.
    const pooled = (await run(texts, { pooling: "mean", normalize: true })).tolist();
    return [pooled, await outputs(js.AutoModel, folder, texts)];
  },
  int8: (folder, texts) => outputs(js.AutoModel, folder, texts, { dtype: "q8" }),
};

const asked = JSON.parse(fs.readFileSync(path.join(parent, "asked.json"), "utf-8"));
const answers = {};
for (const [folder, { reader, rows }] of Object.entries(asked)) {
  answers[folder] = await READERS[reader](folder, rows);
}
fs.writeFileSync(path.join(parent, "answers.json"), JSON.stringify(answers));
