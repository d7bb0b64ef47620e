"""Runs the torture bench and prints its table.

  python -m benchmarks.torture --work=torture_run      whole: hours; goes on where it was stopped
  python -m benchmarks.torture --quick                 a slice of each part, within five minutes

Each failure is listed with the command that repeats it. The exit status is 1 if there is one.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.torture import parts
from benchmarks.torture.materials import Materials


def names() -> dict[str, type[parts.Part]]:
    """The parts, by the names that `--parts` takes."""
    from benchmarks.torture import configs, flips, hostile

    return {module.Part.name: module.Part for module in (flips, configs, hostile)}


def main() -> None:
    """Runs what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", help="some of them, with commas between (default: all)")
    parser.add_argument("--quick", action="store_true", help="a slice of each, in five minutes")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases (default: 1)")
    parser.add_argument("--case", type=int, help="one case alone, to repeat it")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--work", type=Path, help="folder that the next run goes on in")
    options = parser.parse_args()
    started = time.monotonic()
    say = lambda line: print(f"{time.monotonic() - started:7.1f} s  {line}", flush=True)  # noqa: E731
    known = names()
    chosen = options.parts.split(",") if options.parts else list(known)
    if unknown := set(chosen) - set(known):
        parser.error(f"--parts: no {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    with tempfile.TemporaryDirectory(prefix="torture-") as scratch:
        work = options.work or Path(scratch)
        materials = Materials(work / "materials", say)
        made = [known[name](options.seed, materials) for name in chosen]
        found: dict[str, parts.Outcome] = {}
        for part in made:
            cases = range(
                max(1, round((part.quick if options.quick else part.whole) * options.share))
            )
            if options.case is not None:
                cases = [options.case]
            found[part.name] = parts.run(part, cases, work / "journal", say)
        for part in made:
            t = parts.total(found[part.name].values())
            print(part.name, t.done, dict(t.kinds))
            sys.exit(bool(t.failures))


if __name__ == "__main__":
    main()
