"""Attacks by what files hold: bombs, stacked filters, deep nesting, links, odd paths."""

import json
import os
import tracemalloc
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from desk import lay_out
from tersense.cli.program import main
from tersense.errors import TersenseError
from tersense.io.images import read_image, silence_decoders, write_image
from tersense.io.patches import open_patches
from tersense.models.files import read_model, write_model

FAR_TOO_MUCH = 2**28  # bytes that a small file would become


def read_all(path):
    with open_patches(path) as patches:
        return np.concatenate(list(patches.blocks()))


def bomb(path):
    """A dataset of 5 KB, honestly described, whose only chunk unpacks to 256 MB."""
    with h5py.File(path, "w") as file:
        made = file.create_dataset("patches", (80, 64), np.uint8, chunks=(80, 64), compression=9)
        made.id.write_direct_chunk((0, 0), zlib.compress(bytes(FAR_TOO_MUCH)))


def stacked(path):
    """Three times gzip: 100 bytes become what one wishes on the way."""
    with h5py.File(path, "w") as file:
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((80, 64))
        for _ in range(3):
            how.set_deflate(9)
        space = h5py.h5s.create_simple((80, 64))
        made = h5py.h5d.create(file.id, b"patches", h5py.h5t.STD_U8LE, space, how)
        made.write_direct_chunk((0, 0), zlib.compress(zlib.compress(zlib.compress(bytes(2**20)))))


def lzf_and_gzip(path):
    with h5py.File(path, "w") as file:
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((80, 64))
        how.set_filter(32000, h5py.h5z.FLAG_OPTIONAL)
        how.set_deflate(9)
        space = h5py.h5s.create_simple((80, 64))
        made = h5py.h5d.create(file.id, b"patches", h5py.h5t.STD_U8LE, space, how)
        made.write_direct_chunk((0, 0), zlib.compress(bytes(2**20)))


def large_lzf(path):
    with h5py.File(path, "w") as file:
        shape = (80_000, 64)
        made = file.create_dataset("patches", shape, np.uint8, chunks=shape, compression="lzf")
        made.id.write_direct_chunk((0, 0), bytes(4 * 2**20))


def other_filter(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("patches", data=np.zeros((80, 64), np.uint8), scaleoffset=0)


@pytest.mark.parametrize("make", [bomb, stacked, lzf_and_gzip, large_lzf, other_filter])
def test_chunks_that_unpack_to_anything_are_refused(tmp_path, refused, make):
    """A file of 14 MB took 3.4 GB, in libhdf5, where no Python limit counts."""
    make(tmp_path / "a.h5")
    with refused("a.h5: ", "`patches`"):
        read_all(tmp_path / "a.h5")


@pytest.mark.parametrize(
    "options",
    [{}, {"compression": "gzip"}, {"compression": "lzf"}, {"compression": 1, "shuffle": True},
     {"compression": 9, "fletcher32": True}, {"fletcher32": True}],
    ids=str,
)  # fmt: skip
def test_patches_stored_in_the_usual_ways_are_read(tmp_path, rng, options):
    patches = rng.integers(0, 256, (70, 64), dtype=np.uint8)
    chunks = (16, 40) if options else None
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("patches", data=patches, chunks=chunks, **options)
    np.testing.assert_array_equal(read_all(tmp_path / "a.h5").reshape(70, 64), patches)


def add_tensor(path, name, size):
    """Let a model file hold one more tensor, of zeros that take no place on the disk."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), len(content) - 8 - length
    header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [body, body + size]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + content[8 + length :])
        file.truncate(8 + len(text) + body + size)


@pytest.mark.parametrize("name", ["evil", "reconstructor.evil"])
def test_a_tensor_too_many_is_refused_before_it_is_read(small_imager, tmp_path, monkeypatch, name):
    """6 GB of zeros, 7 KB on the disk, took 12.5 GB and 24 s."""
    path = tmp_path / "a.safetensors"
    write_model(path, small_imager)
    add_tensor(path, name, FAR_TOO_MUCH)
    taken = []
    monkeypatch.setattr("torch.Tensor.clone", lambda tensor: taken.append(tensor.numel()) or tensor)
    with pytest.raises(TersenseError, match="not those of the named reconstructor"):
        read_model(path)
    assert sum(taken) < 10_000


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_deep_nesting_ends_in_one_line_or_is_read(tmp_path, monkeypatch, capfd, depth):
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    deep = '{"a":' * depth + "1" + "}" * depth
    for name in ("manifest.json", "result.json", "metrics.jsonl"):
        Path(name).write_text(deep)
    content = Path("small.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    description = header["__metadata__"]["tersense"]
    header["__metadata__"]["tersense"] = description.replace('{"data": "none"}', deep)
    text = json.dumps(header).encode()
    new = len(text).to_bytes(8, "little") + text + content[8 + length :]
    Path("small.safetensors").write_bytes(new)
    for words in (
        ["reconstruct", "table.csv", "--manifest", "manifest.json", "-o", "a.png"],
        ["plot", "psnr", "result.json", "other.json", "-o", "a.png"],
        ["plot", "training", "metrics.jsonl", "-o", "a.png"],
        ["info", "small.safetensors"],
        ["export", "c", "-m", "small.safetensors", "-o", "c"],
    ):  # fmt: skip
        code = main(words)
        said = capfd.readouterr().err
        assert (code, said.count("\n")) in ((0, 0), (2, 1)), said
        assert code == 2 or words[0] in ("info", "export")


def png_with(path, *chunks):
    write_image(path, np.zeros((8, 8), np.uint8))
    content = path.read_bytes()
    parts = [len(data).to_bytes(4) + name + data + zlib.crc32(name + data).to_bytes(4)
             for name, data in chunks]  # fmt: skip
    path.write_bytes(content[:33] + b"".join(parts) + content[33:])


def test_profiles_and_notes_that_unpack_to_too_much_are_refused(tmp_path, refused):
    packed = zlib.compress(bytes(FAR_TOO_MUCH))
    png_with(tmp_path / "profile.png", (b"iCCP", b"a\0\0" + packed))
    notes = [(b"zTXt", b"a%d\0\0" % n + zlib.compress(bytes(2**20 - 9))) for n in range(80)]
    png_with(tmp_path / "notes.png", *notes)
    for name in ("profile.png", "notes.png"):
        tracemalloc.start()
        with refused(name):
            read_image(tmp_path / name)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2**27  # Pillow allows 64 MiB of notes


def test_notes_of_a_camera_that_lead_nowhere_do_not_matter(tmp_path):
    silence_decoders()
    loop = b"II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x08\0\0\0\x08\0\0\0"
    huge = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\xff\xff\xff\x7f\x10\0\0\0\0\0\0\0"
    for notes in (loop, huge, b"MM\0*\0\0\0\x08\xff\xff" + bytes(range(200))):
        png_with(tmp_path / "a.png", (b"eXIf", notes))
        assert read_image(tmp_path / "a.png").shape == (8, 8)


@pytest.mark.parametrize("suffix", [".gif", ".png", ".webp", ".tif"])
def test_of_an_animation_only_the_first_image_is_decoded(tmp_path, monkeypatch, suffix):
    frames = [Image.new("RGB", (40, 30), (shade, 0, 0)) for shade in range(100)]
    frames[0].save(tmp_path / f"a{suffix}", save_all=True, append_images=frames[1:])

    def seek(*arguments):
        raise AssertionError("another frame was looked for")

    monkeypatch.setattr("PIL.Image.Image.seek", seek)
    assert read_image(tmp_path / f"a{suffix}").shape == (30, 40, 3)


@pytest.mark.parametrize("name", ["a.avif", "a.png"])
def test_other_decoders_see_no_file(tmp_path, refused, name):
    """Pillow reads AVIF, PostScript and more; they are not for files of strangers."""
    beginning = b"\0\0\0\x20ftypavif\0\0\0\0avifmif1miafMA1B"
    (tmp_path / name).write_bytes(beginning + bytes(300))
    with refused(name, "none of PNG, JPEG, WebP"):
        read_image(tmp_path / name)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sense(*words):
    return main(["sense", *words, "-m", "small.safetensors"])


@pytest.mark.parametrize("path", ["fifo.png", "/dev/zero"])
def test_what_never_ends_is_said_to_be_no_file(desk, capfd, path):
    os.mkfifo("fifo.png")
    assert sense(path, "-o", "new.tsm") == 2
    assert f"{path}: it is not a regular file" in capfd.readouterr().err


def test_a_link_to_another_kind_of_file_is_not_written_through(desk, capfd):
    """`sense a.png -o y.tsm` replaced what y.tsm pointed to, a photograph or a start-up file."""
    Path("precious").write_text("mine")
    Path("new.tsm").symlink_to("precious")
    Path("new.json").symlink_to("precious")
    assert sense("photo.png", "-o", "new.tsm") == 2
    assert "a link to another kind of file" in capfd.readouterr().err
    assert main(["evaluate", "photo.png", "-m", "small.safetensors", "--json", "new.json"]) == 2
    assert Path("precious").read_text() == "mine"


def test_a_link_to_a_result_stays_a_link(desk):
    Path("elsewhere").mkdir()
    Path("new.tsm").symlink_to("elsewhere/y.tsm")
    assert sense("photo.png", "-o", "new.tsm") == 0
    assert Path("new.tsm").is_symlink()
    assert Path("elsewhere/y.tsm").stat().st_size > 0


@pytest.mark.parametrize(
    ("target", "why"), [("none/y.tsm", "does not exist"), ("new.tsm", "a link to itself")]
)
def test_links_that_lead_nowhere_are_refused_before_the_work(desk, monkeypatch, capfd, target, why):
    Path("new.tsm").symlink_to(target)
    monkeypatch.setattr("tersense.models.imager.Imager.sense", lambda *a: pytest.fail("worked"))
    assert sense("photo.png", "-o", "new.tsm") == 2
    assert why in capfd.readouterr().err


def test_a_file_that_is_read_only_is_kept(desk, capfd):
    """Who may write into its folder could replace it; its owner meant it to stay."""
    Path("y.tsm").chmod(0o444)
    before = Path("y.tsm").read_bytes()
    assert sense("pictures/a.png", "-o", "y.tsm") == 2
    assert "it is read-only" in capfd.readouterr().err
    assert Path("y.tsm").read_bytes() == before


def test_names_with_leading_dashes_are_files(desk):
    Path("photo.png").rename("-m.png")
    assert sense("-o", "-new.tsm", "./-m.png") == 0
    assert main(["sense", "-m", "small.safetensors", "-o", "new.tsm", "--", "-m.png"]) == 0
    assert Path("-new.tsm").read_bytes() == Path("new.tsm").read_bytes()


def test_a_path_of_4096_characters_is_refused_in_one_line(desk, capfd):
    long = "/".join(["d" * 200] * 21)[:4092]
    for words in ([f"{long}.png", "-o", "new.tsm"], ["photo.png", "-o", f"{long}.tsm"]):
        assert sense(*words) == 2
        said = capfd.readouterr().err
        assert said.count("\n") == 1
        assert len(said) < 1000
