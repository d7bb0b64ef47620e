"""Disk full, no inode left and read-only, at any moment of every command that writes.

Where this user may make a mount namespace (`unshare --map-root-user --mount`), the output goes to
a tmpfs of so many pages or inodes, or to one that is read-only. Elsewhere a limit on the size of
files stands for the full disk (RLIMIT_FSIZE), and the other two faults are left out.
"""

import json
import subprocess
import sys
from collections.abc import Callable

from benchmarks import environments
from benchmarks.torture import parts
from benchmarks.torture.materials import Materials, environment, smoke_config

_NAMESPACE = ["unshare", "--map-root-user", "--mount"]
# What runs out, and how much of it there is, of what the command needs.
FAULTS = [
    ("room", 0.5), ("read_only", 0.0), ("inodes", 0.5),
    *(("room", i / 10) for i in (0, 1, 2, 3, 4, 6, 7, 8, 9)),
    *(("inodes", i / 5) for i in (0, 1, 3, 4)),
]  # fmt: skip


def commands(materials: Materials) -> dict[str, Callable[[], list[str]]]:
    """The commands that write; OUT is where to. What they read is made when it is needed."""
    text, config = f"--input={materials.text()}", f"--config={smoke_config('bert')}"
    tokenizer = f"--tokenizer={materials.tokenizer('wordpiece')}"
    main = ["official.main"]
    return {
        "train": lambda: [
            *main, "--mode=train", config, f"--data={materials.shards('bert')}", "--model_dir=OUT",
            "--override=recipe.save_every=4",
        ],
        "export": lambda: ["official.export", f"--model_dir={materials.tuned()}", "--output=OUT"],
        "build_shards": lambda: [
            "tfrecords_tools.build_shards", config, text, tokenizer, "--output=OUT", "--workers=1",
            "--num_shards=2",
        ],
        "convert from Hugging Face": lambda: [
            "official.convert", "--source=hf", f"--input={materials.hugging_face()}",
            "--output=OUT",
        ],
        "build_vocab": lambda: [
            "tfrecords_tools.build_vocab", text, "--type=wordpiece", "--vocab_size=150",
            "--output=OUT",
        ],
        "build_task_shards": lambda: [
            "tfrecords_tools.build_task_shards", "--task=sst2", f"--input={materials.labelled()}",
            tokenizer, "--output=OUT",
        ],
        "predict": lambda: [
            *main, "--mode=predict", f"--data={materials.task_shards()}",
            f"--model_dir={materials.tuned()}", "--output=OUT.tsv",
        ],
        "embed": lambda: [
            *main, "--mode=embed", f"--model_dir={materials.model()}",
            f"--texts={materials.text()}", "--output=OUT.npy",
        ],
        "predict for GLUE": lambda: [
            *main, "--mode=predict", f"--data={materials.task_shards()}",
            f"--model_dir={materials.tuned()}", "--submission=OUT",
        ],
        "submission": lambda: [
            "official.submission", f"--input={materials.submission()}", "--output=OUT.zip",
        ],
        "convert to Hugging Face": lambda: [
            "official.convert", "--target=hf", f"--input={materials.tuned()}", "--output=OUT",
        ],
        "build_phrases": lambda: [
            "tfrecords_tools.build_phrases", text, "--output=OUT.txt",
        ],
    }  # fmt: skip


class Part(parts.Part):
    """A case is one fault in one command, and the same command without it."""

    name = "disk"
    things = "writes to a disk that is full or read-only"
    promise = "an error in words, nothing half-written, the same command then succeeds"
    whole, quick = 12 * len(FAULTS), 3
    in_children = True

    def __init__(
        self,
        seed: int,
        materials: Materials,
        result: Callable[[Materials], dict[str, Callable[[], list[str]]]] = commands,
    ):
        super().__init__(seed)
        self._materials, self._made = materials, result
        self.child: subprocess.Popen | None = None

    def run(self, case: int) -> parts.Outcome:
        """Runs a command under a fault."""
        outcome = parts.Outcome()
        known = self._made(self._materials)
        name = list(known)[case % len(known)]
        fault, share = FAULTS[case // len(known) % len(FAULTS)]
        question = {"command": known[name](), "fault": fault, "share": share}
        answer = self._ask(question)
        if problem := answer.get("problem"):
            outcome.fail(f"{name}, {fault} {share}: {problem}")
        else:
            outcome.add(answer["kind"])
        return outcome

    def _ask(self, question: dict) -> dict:
        if self.child is None or self.child.poll() is not None:
            child = [sys.executable, "-m", "benchmarks.torture.disk_child"]
            allowed = not subprocess.run(
                [*_NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True
            ).returncode
            self.child = subprocess.Popen(
                [*_NAMESPACE, *child, "tmpfs"] if allowed else [*child, "limit"],
                cwd=environments.ROOT,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        print(json.dumps(question), file=self.child.stdin, flush=True)
        return json.loads(self.child.stdout.readline())
