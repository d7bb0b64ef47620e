"""Single bits of files are flipped, and files are cut: refused in words, or harmless."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.torture import parts, readers
from benchmarks.torture.materials import Materials
from official.utils.errors import UserError

_CUT = 0.2  # of the damages; the others flip a bit


class Part(parts.Part):
    """Flips and truncations over all files that are read."""

    name = "flips"
    things = "single-bit flips and truncations"
    promise = "refused in words, or what is read is equal"
    whole, quick = 10_000, 600

    def __init__(
        self,
        seed: int,
        materials: Materials,
        result: Callable[[Materials], Sequence[readers.Reader]] = readers.readers,
    ):
        super().__init__(seed)
        self._materials, self._made = materials, result
        self._readers: list[tuple[readers.Reader, Path, object]] = []
        self._scratch = tempfile.TemporaryDirectory(prefix="flips-")

    def run(self, case: int) -> parts.Outcome:
        """Damages one file and reads it."""
        outcome = parts.Outcome()
        rng = self.rng(case)
        reader, folder, whole = self._choose(int(rng.integers(100)))
        files = reader.paths()
        file = folder / files[rng.integers(len(files))]
        original = file.read_bytes()
        damaged = bytearray(original)
        if rng.random() < _CUT:
            del damaged[rng.integers(len(original)) :]
            what = f"cut at byte {len(damaged)} of {len(original)}"
        else:
            bit = int(rng.integers(8 * len(original)))
            damaged[bit // 8] ^= 1 << (bit % 8)
            what = f"bit {bit % 8} of byte {bit // 8} flipped"
        what = f"{reader.name}, {file.relative_to(folder)}, {what}"
        file.write_bytes(damaged)
        try:
            converted = reader.read(folder)
        except UserError as error:
            if str(folder) in str(error) or file.name in str(error):
                outcome.add("refused")
            else:
                outcome.fail(f"{what}: the message names no file: {error}")
        except Exception as error:  # noqa: BLE001  (any other is what must not be)
            outcome.fail(f"{what}: {type(error).__name__}: {str(error)[:300]}")
        else:
            unlike = readers.differences(whole, converted)
            if not unlike:
                outcome.add("harmless")
            elif reader.foreign and _is_one(unlike, reader.blocks):
                outcome.add("as the file says")
            else:
                outcome.fail(f"{what}: read otherwise: {'; '.join(unlike[:4])}")
        finally:
            file.write_bytes(original)
        return outcome

    def _choose(self, percent: int) -> tuple[readers.Reader, Path, object]:
        """A reader by its share, the copy of its folder, and what is read of the whole one."""
        if not self._readers:
            for number, reader in enumerate(self._made(self._materials)):
                copy = Path(self._scratch.name) / str(number)
                shutil.copytree(reader.folder, copy)
                self._readers.append((reader, copy, reader.read(copy)))
        total = sum(reader.share for reader, _, _ in self._readers)
        place = percent * total / 100
        for actual in self._readers:
            place -= actual[0].share
            if place < 0:
                return actual
        return self._readers[-1]


def _is_one(unlike: Sequence[str], blocks: bool) -> bool:
    """Whether what differs is one value of a file, wherever it goes, or one variable."""
    if blocks and len({place.partition(":")[0] for place in unlike}) == 1:
        return True
    heads = [place.split("/")[1] for place in unlike]
    # A piece with another spelling may no longer be a special token.
    return {*heads} == {"config"} or heads in (["pieces", "tokenizer"], heads[:1])
