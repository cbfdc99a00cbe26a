"""Let coverage guide the damage: `python tests/long/fuzz_guided.py READER [-runs=10000 …]`.

Needs atheris (pip install atheris); all options but the reader are those of libFuzzer. Half of the
inputs are our own mutations of good files, half are libFuzzer's of what reached new code. It ends
at the first input that is neither used nor refused by one clear line.
"""

import sys
import tempfile
from pathlib import Path
from random import Random

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))
with atheris.instrument_imports(include=["tersense", "tomllib", "json", "PIL"]):
    from mutations import mutate
    from readers import make_readers


def main() -> None:
    """Fuzz one reader for ever, or as often as libFuzzer is told."""
    name, *options = sys.argv[1:]
    folder = Path(tempfile.mkdtemp(prefix="tersense-fuzz-"))
    reader = make_readers(folder)[name]
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(reader.seeds):
        (corpus / str(number)).write_bytes(seed)

    def try_one(content: bytes) -> None:
        reader.meet(folder / f"input{reader.suffix}", content)

    def change(content: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.5:
            return atheris.Mutate(content, most)
        try:
            return mutate(random, [content or reader.seeds[0]], reader.suffix)[:most]
        except (ValueError, RecursionError, TypeError, KeyError):  # its structure is lost
            return atheris.Mutate(content, most)

    longest = 4 * max(map(len, reader.seeds))
    words = [sys.argv[0], f"-max_len={longest}", "-timeout=20", "-rss_limit_mb=4096", *options]
    atheris.Setup([*words, str(corpus)], try_one, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
