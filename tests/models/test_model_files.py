import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from skimage import data as images

import tersense
from cameras import adaptive_imager
from tersense.errors import TersenseError
from tersense.models.files import FORMAT, _pack, _unpack, read_model, write_model
from tersense.models.imager import Imager
from tersense.models.zoo import (
    ALIASES,
    WEIGHTS,
    Alias,
    find_by_patterns,
    load,
    names,
    share_patterns,
)
from tersense.reconstruction.mlp import MlpOptions, MlpReconstructor
from tersense.reconstruction.unrolled import UnrolledOptions, UnrolledReconstructor
from tersense.sensing.geometry import Geometry
from tersense.sensing.patterns import Patterns, random_patterns


@pytest.fixture(scope="module")
def good_file(tmp_path_factory, make_imager):
    """A good model file, made once; tests work on copies."""
    file = tmp_path_factory.mktemp("model") / "small.safetensors"
    write_model(file, make_imager())
    return file


@pytest.fixture
def path(tmp_path, good_file):
    """A good model file of one's own."""
    return Path(shutil.copy(good_file, tmp_path))


@pytest.fixture
def zoo(tmp_path, monkeypatch, make_imager):
    """Two small built-in models, one of which is called `default` as well."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    write_model(folder / "two.safetensors", make_imager("as trained", seed=2))
    write_model(folder / "one.safetensors", make_imager("as trained", seed=1))
    monkeypatch.setattr("tersense.models.zoo.WEIGHTS", folder)
    monkeypatch.setattr("tersense.models.zoo.ALIASES", {"default": Alias("two")})
    return folder


def take_apart(path):
    """Return what a model file holds: the description and the tensors."""
    with safe_open(path, framework="pt") as file:
        description = json.loads(file.metadata()["tersense"])
        return description, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def camera_of(patterns):
    """Return the smallest camera with given patterns."""
    m, geometry = len(patterns), Geometry(patterns.window, patterns.stride)
    network = MlpReconstructor(geometry, m, MlpOptions(hidden=(8,)))
    return Imager("sparse", patterns, torch.ones(m), 116.0, 69.0, network)


def unrolled_camera(channels=8, density=0.25, seed=0):
    """Return a small camera with convolutions, whose weights are random."""
    torch.manual_seed(seed)
    patterns = random_patterns(20, 8, density)
    options = UnrolledOptions(1, channels, universal=True)
    network = UnrolledReconstructor(Geometry(8, 8), 20, options)
    for weights in network.parameters():
        torch.nn.init.normal_(weights, std=0.05)
    return Imager("unrolled", patterns, torch.ones(20), 116.0, 69.0, network)


def assert_nearly_equal(found, true):
    """Compare weights with those that `write_model(…, compact=True)` was given."""
    groups = true.detach().reshape(-1, 8)
    bound = (groups.abs().amax(dim=1, keepdim=True) / 253).clamp(min=0.000031)
    assert ((found.detach().reshape(-1, 8) - groups).abs() <= bound).all()


def put_together(path, description, tensors):
    """Write a model file from its parts, right or wrong."""
    text = description if isinstance(description, str) else json.dumps(description)
    save_file(tensors, path, {"tersense": text})


# Round trip


def test_a_model_that_was_written_is_read_again(path, small_imager):
    again = read_model(path)
    np.testing.assert_array_equal(again.phi, small_imager.phi)
    assert again.phi.dtype == np.int8
    assert again.patterns.hash == small_imager.patterns.hash
    assert again.geometry == small_imager.geometry
    assert (again.name, again.about) == ("small", {"data": "none"})
    assert (again.mean, again.std) == (116.18, 68.64)
    assert again.reconstructor.options == small_imager.reconstructor.options
    assert torch.equal(again.operator.alpha, small_imager.operator.alpha)


def test_a_model_that_was_read_senses_the_same_and_reconstructs_nearly_the_same(path, small_imager):
    camera = images.camera()[100:150, 200:261]
    again = read_model(path)
    y = small_imager.sense(camera)
    np.testing.assert_array_equal(again.sense(camera).values, y.values)
    before, after = small_imager.estimate(y), again.estimate(y)
    # Weights are rounded by at most 2⁻¹¹ of their size; a layer adds tens of them.
    np.testing.assert_allclose(after, before, atol=0.01 * np.ptp(before))
    assert before.std() > 1  # a reconstruction that varies, so that the comparison says something


def test_writing_a_model_that_was_read_changes_nothing(tmp_path, path):
    write_model(tmp_path / "again.safetensors", read_model(path))
    first, second = take_apart(path), take_apart(tmp_path / "again.safetensors")
    assert first[0] == second[0]
    assert first[1].keys() == second[1].keys()
    assert all(torch.equal(first[1][key], second[1][key]) for key in first[1])


def test_the_file_holds_two_bits_per_entry_of_phi_and_halves_for_matrices(path):
    _, tensors = take_apart(path)
    assert (tensors["phi"].dtype, tuple(tensors["phi"].shape)) == (torch.uint8, (16, 8, 2))
    matrices = [t for key, t in tensors.items() if key.endswith("weight") and t.ndim == 2]
    assert [tuple(matrix.shape) for matrix in matrices] == [(16, 16), (64, 16)]
    assert all(matrix.dtype == torch.float16 for matrix in matrices)


def test_a_compact_file_keeps_fully_connected_layers_in_less_space(tmp_path):
    network = MlpReconstructor(Geometry(16, 16), 32, MlpOptions(hidden=(48,)))
    network.layers[0].weight.data[3] *= 100  # one row does not spoil the others
    network.layers[0].weight.data[5, 16:] = 0
    network.layers[0].weight.data[7] *= 0.001
    imager = Imager("one", random_patterns(32, 16, 0.1), torch.ones(32), 116.0, 69.0, network)
    write_model(tmp_path / "plain.safetensors", imager)
    write_model(tmp_path / "compact.safetensors", imager, compact=True)
    plain, compact = ((tmp_path / f"{n}.safetensors").stat().st_size for n in ("plain", "compact"))
    matrices = 32 * 48 + 48 * 256
    assert 0.6 * matrices < plain - compact < 0.75 * matrices
    assert take_apart(tmp_path / "compact.safetensors")[0]["format"] == 4  # Φ is sparse
    written = read_model(tmp_path / "compact.safetensors")
    write_model(tmp_path / "again.safetensors", written, compact=True)
    once, twice = (tmp_path / f"{name}.safetensors" for name in ("compact", "again"))
    assert once.read_bytes() == twice.read_bytes()
    again = written.reconstructor
    for layer in (0, 3):
        assert_nearly_equal(again.layers[layer].weight, network.layers[layer].weight)
    assert (again.layers[0].weight[5, 16:] == 0).all()
    for key, value in network.state_dict().items():
        if value.ndim < 2:
            assert (again.state_dict()[key] == value).all()


@given(st.integers(1, 9), st.floats(-7, 3), st.floats(0, 3), st.integers(0, 99))
def test_a_compact_file_keeps_convolutions_whose_rows_are_whole_groups_as_bytes(
    tmp_path_factory, channels, size, spread, seed
):
    imager = unrolled_camera(channels, seed=seed)
    weights = imager.reconstructor.state_dict()
    for value in weights.values():
        if value.ndim > 1:  # some tiny, some large, a row of zeros
            value *= 10 ** (size + spread * torch.randn(value.shape)).clamp(max=4)
            value[-1] = 0
    path = tmp_path_factory.getbasetemp() / "drawn.safetensors"
    write_model(path, imager, compact=True)
    description, tensors = take_apart(path)
    assert description["format"] == 5
    again = read_model(path).reconstructor.state_dict()
    for key, true in weights.items():
        stored = tensors[f"reconstructor.{key}"]
        assert stored.shape == true.shape
        if true.ndim < 2:
            assert torch.equal(again[key], true)
        elif true[0].numel() % 8:
            assert torch.equal(stored, true.half())
            assert torch.equal(again[key], true.half().float())
        else:
            scale = tensors[f"reconstructor.{key}.scale"]
            assert (stored.dtype, scale.dtype) == (torch.int8, torch.float16)
            assert scale.shape == (len(true), true[0].numel() // 8)
            expected = stored.reshape(-1, 8) * scale.float().reshape(-1, 1)
            assert torch.equal(again[key].reshape(-1, 8), expected)
            assert_nearly_equal(again[key], true)


def test_layers_and_both_kinds_of_convolutions_take_five_eighths_of_the_space(tmp_path):
    plain, compact = (tmp_path / f"{name}.safetensors" for name in ("plain", "compact"))
    imager = adaptive_imager()
    write_model(plain, imager)
    write_model(compact, imager, compact=True)
    before, after = take_apart(plain)[1], take_apart(compact)[1]
    coded = [key.removesuffix(".scale") for key in after if key.endswith(".scale")]
    owners = (key.removeprefix("reconstructor.").removesuffix(".weight") for key in coded)
    kinds = {type(imager.reconstructor.get_submodule(owner)) for owner in owners}
    assert kinds == {torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear}
    for key, value in before.items():
        space = value.nbytes * 5 // 8 if key in coded else value.nbytes
        assert sum(after[name].nbytes for name in (key, f"{key}.scale") if name in after) == space


@pytest.mark.parametrize(
    ("compact", "density", "version"),
    [(False, 0.25, 2), (False, 0.05, 4), (True, 0.25, 5), (True, 0.05, 5)],
)
def test_only_files_with_convolutions_as_bytes_have_format_5(tmp_path, compact, density, version):
    imager = unrolled_camera(density=density)
    write_model(tmp_path / "unrolled.safetensors", imager, compact=compact)
    description, tensors = take_apart(tmp_path / "unrolled.safetensors")
    assert description["format"] == version
    assert tensors["phi"].dtype == (torch.int16 if density == 0.05 else torch.uint8)
    read = read_model(tmp_path / "unrolled.safetensors")
    np.testing.assert_array_equal(read.phi, imager.phi)


def test_a_universal_network_reconstructs_nearly_the_same_from_a_compact_file(tmp_path):
    plain, compact = (tmp_path / f"{name}.safetensors" for name in ("plain", "compact"))
    imager = adaptive_imager()
    write_model(plain, imager)
    write_model(compact, imager, compact=True)
    before, after = read_model(plain), read_model(compact)
    y = imager.sense(images.camera()[100:150, 200:261])
    true, found = before.estimate(y), after.estimate(y)
    assert true.std() > 1
    assert 0 < np.abs(found - true).max() < 0.01 * np.ptp(true)
    for key, value in before.camera.predictor.state_dict().items():  # as decided before
        assert torch.equal(after.camera.predictor.state_dict()[key], value)


def test_weights_of_a_compact_file_stay_when_it_is_written_again(tmp_path):
    once, twice = (tmp_path / f"{name}.safetensors" for name in ("once", "twice"))
    write_model(once, adaptive_imager(), compact=True)
    write_model(twice, read_model(once), compact=True)
    assert once.read_bytes() == twice.read_bytes()


@pytest.mark.parametrize("compact", [False, True])
def test_convolutions_that_were_read_have_the_channels_of_a_pixel_side_by_side(tmp_path, compact):
    write_model(tmp_path / "unrolled.safetensors", unrolled_camera(), compact=compact)
    network = read_model(tmp_path / "unrolled.safetensors").reconstructor
    kernels = [weights for weights in network.parameters() if weights.ndim == 4]
    assert len(kernels) > 5
    assert all(kernel.is_contiguous(memory_format=torch.channels_last) for kernel in kernels)


def test_a_sparse_phi_is_stored_as_signed_places(tmp_path):
    phi = np.zeros((2, 16, 16), np.int8)
    phi[0, 0, 0], phi[0, 0, 15], phi[0, 1, 0] = 1, -1, 1
    phi[1, 3, 2], phi[1, 15, 14], phi[1, 15, 15] = -1, 1, -1
    write_model(tmp_path / "sparse.safetensors", camera_of(Patterns(phi, 8)))
    description, tensors = take_apart(tmp_path / "sparse.safetensors")
    assert (description["format"], description["window"]) == (4, 16)
    assert tensors["phi"].dtype == torch.int16
    assert tensors["phi"].tolist() == [[1, -16, 17], [-51, 255, -256]]


@given(st.integers(1, 3), st.integers(1, 20), st.data())
def test_phi_is_stored_in_the_least_space_and_read_again(tmp_path_factory, m, window, data):
    nonzeros = data.draw(st.integers(1, 1 + window**2 // 8) | st.integers(1, window**2), "K")
    random = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    phi = np.zeros((m, window**2), np.int8)
    for row in phi:
        row[random.permutation(window**2)[:nonzeros]] = random.choice([-1, 1], nonzeros)
    patterns = Patterns(phi.reshape(m, window, window), window)
    path = tmp_path_factory.getbasetemp() / "drawn.safetensors"
    write_model(path, camera_of(patterns))
    description, tensors = take_apart(path)
    places, packed = m * nonzeros * 2, m * window * -(-window // 4)
    assert tensors["phi"].nbytes == min(places, packed)
    assert description["format"] == (4 if places < packed else 2)
    again = read_model(path)
    assert again.phi.dtype == np.int8
    np.testing.assert_array_equal(again.phi, patterns.phi)


def test_rows_with_different_numbers_of_nonzeros_are_stored_with_two_bits_per_entry(tmp_path):
    phi = random_patterns(4, 32, 0.02).phi.copy()
    row = phi[2].reshape(-1)
    row[np.flatnonzero(row)[0]] = 0
    for compact, version in ((False, 2), (True, 3)):
        write_model(tmp_path / "mixed.safetensors", camera_of(Patterns(phi, 32)), compact=compact)
        description, tensors = take_apart(tmp_path / "mixed.safetensors")
        assert description["format"] == version
        assert "window" not in description  # unknown to programs before format 4
        assert tensors["phi"].dtype == torch.uint8
        np.testing.assert_array_equal(read_model(tmp_path / "mixed.safetensors").phi, phi)


@pytest.mark.parametrize(("window", "version"), [(181, 4), (182, 2)])
def test_places_are_for_windows_whose_last_one_fits(tmp_path, window, version):
    phi = np.zeros((1, window, window), np.int8)
    phi[0, -1, -1] = -1
    write_model(tmp_path / "wide.safetensors", camera_of(Patterns(phi, window)))
    assert take_apart(tmp_path / "wide.safetensors")[0]["format"] == version
    np.testing.assert_array_equal(read_model(tmp_path / "wide.safetensors").phi, phi)


def test_a_compact_file_without_whole_groups_of_weights_is_an_ordinary_one(tmp_path):
    plain, compact = (tmp_path / f"{name}.safetensors" for name in ("plain", "compact"))
    network = MlpReconstructor(Geometry(8, 8), 20, MlpOptions(hidden=(9,)))
    imager = Imager("odd", random_patterns(20, 8, 0.25), torch.ones(20), 116.0, 69.0, network)
    write_model(plain, imager)
    write_model(compact, imager, compact=True)
    assert plain.read_bytes() == compact.read_bytes()


def test_writing_into_a_missing_folder_is_refused(tmp_path, refused, small_imager):
    with refused(tmp_path / "missing"):
        write_model(tmp_path / "missing" / "a.safetensors", small_imager)


# Names


def test_built_in_names_are_sorted(zoo):
    assert names() == ["one", "two"]


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_built_in_model_is_loaded_by_name_and_called_so(zoo, name):
    imager = load(name)
    assert imager.name == name
    np.testing.assert_array_equal(imager.phi, read_model(zoo / f"{name}.safetensors").phi)


def test_an_alias_loads_the_model_it_stands_for(zoo):
    assert load("default").name == "two"
    assert load("default").patterns.hash == load("two").patterns.hash != load("one").patterns.hash


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_model_file_is_loaded_by_path(zoo, path, kind):
    assert load(kind(path)).name == "small"


def test_an_unknown_name_is_refused_with_the_known_ones(zoo, refused):
    with refused("three", "one", "two", "default"):
        load("three")


def test_a_folder_is_no_model(tmp_path, refused):
    with refused(tmp_path):
        load(tmp_path)
    with refused(tmp_path):
        read_model(tmp_path)


def test_a_missing_file_is_refused(tmp_path, refused):
    with refused(tmp_path / "a.safetensors"):
        read_model(tmp_path / "a.safetensors")


def test_a_built_in_model_is_found_by_its_patterns(zoo, make_imager, refused):
    patterns = make_imager(seed=1).patterns
    assert find_by_patterns(patterns.hash, patterns.stride, len(patterns)) == "one"
    with refused(patterns.hash[:12]):
        find_by_patterns(patterns.hash, patterns.stride // 2, len(patterns))
    stranger = make_imager(seed=3).patterns.hash
    with refused(stranger[:12]):
        find_by_patterns(stranger, patterns.stride, len(patterns))


def test_of_models_that_share_patterns_the_largest_comes_first(zoo, make_imager):
    imager = make_imager(seed=7)
    write_model(zoo / "small.safetensors", imager)
    imager.about["story"] = "long" * 1000
    write_model(zoo / "tall.safetensors", imager)
    wanted = imager.patterns.hash, imager.patterns.stride, len(imager.patterns)
    assert share_patterns(*wanted) == ("tall", "small")
    assert find_by_patterns(*wanted) == "tall"


def test_the_models_that_come_along_can_be_loaded():
    assert {alias.model for alias in ALIASES.values()} <= set(names())
    assert "default" in ALIASES
    for name in names():
        imager = tersense.load(name)
        assert imager.name == name
        assert set(np.unique(imager.phi)) <= {-1, 0, 1}


def test_the_models_that_come_along_are_files_of_several_formats():
    files = [WEIGHTS / f"{name}.safetensors" for name in names()]
    assert {take_apart(file)[0]["format"] for file in files} == {2, 3, 4, 5, 6}


# Damaged files


def test_a_file_cut_anywhere_is_refused(tmp_path, refused, path):
    content = path.read_bytes()
    cut = tmp_path / "cut.safetensors"
    for length in {
        *range(20),
        *range(20, len(content), 97),
        *range(len(content) - 9, len(content)),
    }:
        cut.write_bytes(content[:length])
        with refused(cut):
            read_model(cut)


def test_a_file_with_bytes_added_is_refused(refused, path):
    path.write_bytes(path.read_bytes() + b"more")
    with refused(path):
        read_model(path)


@pytest.mark.parametrize("length", [0, 1, 8, 9, 100, 10_000])
def test_random_bytes_are_refused(tmp_path, refused, rng, length):
    (tmp_path / "a.safetensors").write_bytes(rng.bytes(length))
    with refused(tmp_path / "a.safetensors"):
        read_model(tmp_path / "a.safetensors")


def test_damaged_bytes_in_the_header_give_a_model_or_a_clear_error(tmp_path, path, rng):
    content = path.read_bytes()
    header = 8 + struct.unpack("<Q", content[:8])[0]
    damaged_file = tmp_path / "damaged.safetensors"
    for _ in range(400):
        damaged = bytearray(content)
        for place in rng.integers(0, header, size=rng.integers(1, 3)):
            damaged[place] = rng.integers(32, 127)
        damaged_file.write_bytes(damaged)
        message = str(damaged_file)
        try:
            assert isinstance(read_model(damaged_file), Imager)
        except TersenseError as error:
            message = str(error)
        assert str(damaged_file) in message
        assert len(message.splitlines()) == 1


def test_a_file_without_metadata_is_refused(tmp_path, refused, path):
    _, tensors = take_apart(path)
    bare = tmp_path / "bare.safetensors"
    save_file(tensors, bare)
    with refused(bare):
        read_model(bare)
    save_file(tensors, bare, {"format": "pt"})
    with refused(bare):
        read_model(bare)


@pytest.mark.parametrize(
    "text", ["", "{", "null", "3", "[]", '"text"', "{}", '{"format": 1}', "[" * 100_000]
)
def test_metadata_that_is_no_description_is_refused(refused, path, text):
    put_together(path, text, take_apart(path)[1])
    with refused(path):
        read_model(path)


@pytest.mark.parametrize(
    "key", ["format", "name", "stride", "mean", "std", "reconstructor", "options", "about"]
)
def test_a_description_with_an_entry_missing_is_refused(refused, path, key):
    description, tensors = take_apart(path)
    del description[key]
    put_together(path, description, tensors)
    with refused(path, key):
        read_model(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "one"),
        ("format", None),
        ("stride", 0),
        ("stride", -8),
        ("stride", 9),
        ("stride", "8"),
        ("stride", 7.5),
        ("stride", None),
        ("mean", "gray"),
        ("mean", None),
        ("mean", float("nan")),
        ("std", []),
        ("std", 0),
        ("std", -1.0),
        ("std", float("nan")),
        ("std", float("inf")),
        ("reconstructor", "zzz"),
        ("reconstructor", 3),
        ("reconstructor", ["mlp"]),
        ("reconstructor", "os.system"),
        ("options", None),
        ("options", 3),
        ("options", "hidden"),
        ("options", ["hidden"]),
        ("options", {"hiden": [16]}),
        ("options", {"hidden": 16}),
        ("options", {"hidden": ["16"]}),
        ("options", {"hidden": []}),
        ("options", {"hidden": [0]}),
        ("options", {"hidden": [-16]}),
        ("options", {"hidden": [16, 16]}),
        ("options", {}),  # the paper's layers, which these weights are not
        ("about", 3),
    ],
)
def test_a_description_with_a_wrong_entry_is_refused(refused, path, key, value):
    description, tensors = take_apart(path)
    put_together(path, description | {key: value}, tensors)
    with refused(path):
        read_model(path)


def test_a_newer_format_is_refused_with_advice(refused, path):
    description, tensors = take_apart(path)
    put_together(path, description | {"format": FORMAT + 1}, tensors)
    with refused(path, FORMAT + 1, "update"):
        read_model(path)


def test_an_unknown_reconstructor_is_refused_with_the_known_ones(refused, path):
    description, tensors = take_apart(path)
    put_together(path, description | {"reconstructor": "zzz"}, tensors)
    with refused(path, "zzz", "mlp"):
        read_model(path)


@pytest.mark.parametrize(
    "hidden", [[10**13], [16, 10**13], [10**12, 10**12], [10**18], [2**62, 2**62], [10**30]]
)
def test_huge_layers_that_the_file_does_not_hold_are_refused_without_memory_for_them(
    refused, path, hidden
):
    # More than any address space: whoever asked for this memory would get another error.
    description, tensors = take_apart(path)
    put_together(path, description | {"options": {"hidden": hidden}}, tensors)
    with refused(path):
        read_model(path)


# Wrong tensors


def replaced(path, **tensors):
    """Rewrite a model file with some tensors replaced, or left out where None."""
    description, kept = take_apart(path)
    kept |= tensors
    put_together(path, description, {key: t for key, t in kept.items() if t is not None})


@pytest.mark.parametrize(
    "phi",
    [
        torch.full((16, 8, 8), 2, dtype=torch.int8),
        torch.full((16, 8, 8), -2, dtype=torch.int8),
        torch.full((16, 8, 8), -128, dtype=torch.int8),
        torch.ones(16, 8, 8),
        torch.ones(16, 8, 8, dtype=torch.bfloat16),
        torch.ones(16, 8, 8, dtype=torch.uint8),
        torch.ones(16, 8, 3, dtype=torch.uint8),
        torch.ones(16, 8, 8, dtype=torch.bool),
        torch.ones(16, 64, dtype=torch.int8),
        torch.ones(16, 8, 9, dtype=torch.int8),
        torch.ones(15, 8, 8, dtype=torch.int8),
        torch.ones(16, 9, 9, dtype=torch.int8),
        torch.ones(0, 8, 8, dtype=torch.int8),
        torch.ones(16, 0, 0, dtype=torch.int8),
        torch.ones((), dtype=torch.int8),
        None,
    ],
    ids=lambda t: "none" if t is None else f"{t.dtype}{list(t.shape)}".replace("torch.", ""),
)
def test_patterns_that_are_not_ternary_or_do_not_fit_are_refused(refused, path, phi):
    replaced(path, phi=phi)
    with refused(path):
        read_model(path)


@pytest.mark.parametrize("format", [1, 2])
def test_one_entry_of_phi_that_is_not_ternary_is_enough(refused, path, small_imager, format):
    phi = torch.from_numpy(small_imager.phi.copy()) if format == 1 else take_apart(path)[1]["phi"]
    replaced(path, phi=phi)
    assert np.array_equal(read_model(path).phi, small_imager.phi)
    phi[7, 3, 1] = 3 if format == 1 else 2 << 4
    replaced(path, phi=phi)
    with refused(path):
        read_model(path)


@pytest.fixture
def sparse(tmp_path):
    """A good model file with Φ as places: 4 rows of 10 non-zeros, windows of 16×16."""
    write_model(tmp_path / "sparse.safetensors", camera_of(random_patterns(4, 16, 0.04)))
    return tmp_path / "sparse.safetensors"


def changed(row, column, place):
    """Return a change of Φ: another place in one row."""

    def change(phi):
        phi[row, column] = place
        return phi

    return change


# What may be wrong with places: how it comes about, and what the message says.
WRONG_PLACES = {
    "a vector": (lambda phi: phi.flatten(), "(40,)"),
    "a line for each entry": (lambda phi: phi[..., None], "(4, 10, 1)"),
    "whole windows": (lambda phi: phi[:, :1, None].expand(4, 16, 16), "(4, 16, 16)"),
    "no non-zeros": (lambda phi: phi[:, :0], "(4, 0)"),
    "more than the window": (lambda phi: phi.repeat(1, 26), "(4, 260)"),
    "a row too few": (lambda phi: phi[:3], "alpha"),
    "no rows": (lambda phi: phi[:0], "(0, 16, 16)"),
    "zero first": (changed(0, 0, 0), "increase from 1"),
    "zero last": (changed(3, 9, 0), "increase from 1"),
    "decreasing": (lambda phi: phi.flip(1), "increase from 1"),
    "one row decreasing": (lambda phi: torch.cat([phi[:3], phi[3:].flip(1)]), "increase from 1"),
    "twice the same": (lambda phi: phi[:, [0, 1, 2, 3, 4, 4, 6, 7, 8, 9]], "increase from 1"),
    "twice, +1 and −1": (lambda phi: torch.cat([phi[:, 1:], -phi[:, -1:]], 1), "increase from 1"),
    "beyond the window": (changed(2, 9, 257), "at most 16²"),
    "−1 beyond the window": (changed(2, 9, -257), "at most 16²"),
    "the largest number": (changed(0, 9, 32767), "at most 16²"),
    "the least number": (changed(0, 9, -32768), "at most 16²"),
}


@pytest.mark.parametrize("wrong", WRONG_PLACES)
def test_places_of_wrong_shape_order_or_size_are_refused(refused, sparse, wrong):
    change, told = WRONG_PLACES[wrong]
    replaced(sparse, phi=change(take_apart(sparse)[1]["phi"]).contiguous())
    with refused(sparse, told):
        read_model(sparse)


@pytest.mark.parametrize(
    ("window", "told"),
    [
        (None, "window must stand"),
        (0, "window must stand"),
        (3, "3²"),
        (15, "15²"),
        (17, "289"),  # Φ can be read, but the weights are for 256 pixels
        (182, "model.window"),
        (10**30, "model.window"),
        (-16, "model.window"),
        (16.0, "model.window"),
        ("16", "model.window"),
        ([16], "model.window"),
    ],
    ids=str,
)
def test_a_window_that_is_missing_or_does_not_fit_is_refused(refused, sparse, window, told):
    description, tensors = take_apart(sparse)
    del description["window"]
    put_together(sparse, description | ({} if window is None else {"window": window}), tensors)
    with refused(sparse, told):
        read_model(sparse)


def test_few_places_of_huge_patterns_are_refused_without_memory_for_them(refused, sparse):
    description, tensors = take_apart(sparse)
    rows = 2**28 // 181**2 + 1
    tensors["phi"] = torch.ones(rows, 1, dtype=torch.int16)
    put_together(sparse, description | {"window": 181}, tensors)
    with refused(sparse, f"{rows * 181**2:,}"):
        read_model(sparse)


@given(st.integers(1, 5), st.integers(1, 13), st.randoms(use_true_random=False))
def test_phi_of_any_window_is_packed_and_unpacked(m, window, random):
    phi = np.array([random.choice((-1, 0, 1)) for _ in range(m * window**2)], np.int8)
    phi = phi.reshape(m, window, window)
    packed = _pack(phi)
    np.testing.assert_array_equal(_unpack(packed), phi)
    one_entry = packed[0, 0, (window - 1) // 4] >> 2 * ((window - 1) % 4) & 3
    assert one_entry == phi[0, 0, -1] % 4


def test_what_fills_up_a_line_of_phi_must_be_zero():
    packed = _pack(np.ones((2, 5, 5), np.int8))
    packed[1, 4, 1] |= 1 << 2
    with pytest.raises(TersenseError, match="zeros"):
        _unpack(packed)


@pytest.mark.parametrize("alpha", [torch.ones(15), torch.ones(16, 1), torch.tensor(1.0), None])
def test_scales_that_do_not_fit_are_refused(refused, path, alpha):
    replaced(path, alpha=alpha)
    with refused(path, "alpha"):
        read_model(path)


@pytest.mark.parametrize(
    "wrong", [torch.ones(16, 15), torch.ones(256), torch.ones(16, 16, dtype=torch.int32), None]
)
def test_weights_that_do_not_fit_are_refused(refused, path, wrong):
    replaced(path, **{"reconstructor.layers.0.weight": wrong})
    with refused(path):
        read_model(path)


@pytest.mark.parametrize("name", ["more", "reconstructor.more", "layers.0.weight"])
def test_tensors_that_do_not_belong_there_are_refused(refused, path, name):
    replaced(path, **{name: torch.ones(3)})
    with refused(path):
        read_model(path)


# What may be wrong with weights that are bytes: what becomes of them and of their scales, and what
# the message says.
WRONG_BYTES = {
    "one scale per row": (lambda w, s: (w, s[:, :1]), "scale must be F16 of shape"),
    "a row of scales too few": (lambda w, s: (w, s[:-1]), "scale must be F16 of shape"),
    "columns before rows": (lambda w, s: (w, s.T), "scale must be F16 of shape"),
    "scales in one line": (lambda w, s: (w, s.flatten()), "scale must be F16 of shape"),
    "a scale for each weight": (lambda w, s: (w, torch.ones_like(w).half()), "scale must be F16"),
    "no scales": (lambda w, s: (w, s[:0]), "scale must be F16 of shape"),
    "scales of 32 bits": (lambda w, s: (w, s.float()), "scale must be F16 of shape"),
    "bfloat16": (lambda w, s: (w, s.bfloat16()), "scale must be F16 of shape"),
    "whole scales": (lambda w, s: (w, s.short()), "scale must be F16 of shape"),
    "an infinite scale": (lambda w, s: (w, changed(0, 0, torch.inf)(s)), "NaN or Inf"),
    "NaN": (lambda w, s: (w, changed(-1, -1, torch.nan)(s)), "NaN or Inf"),
    "missing": (lambda w, s: (w, None), "must be torch.float32 of shape"),
    "weights of 16 bits": (lambda w, s: (w.half(), s), "beside bytes"),
    "unsigned bytes": (lambda w, s: (w.byte(), s), "beside bytes"),
    "too few bytes": (lambda w, s: (w[:, :-1], s), "must be torch.float32 of shape"),
    "weights in one line": (lambda w, s: (w.flatten(), s), "must be torch.float32 of shape"),
    "a dimension more": (lambda w, s: (w[..., None], s), "must be torch.float32 of shape"),
    "no weights": (lambda w, s: (None, s), "weights are not those"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_BYTES)
@pytest.mark.parametrize("kind", ["fully connected", "convolution"])
def test_bytes_and_scales_that_do_not_fit_are_refused(tmp_path, refused, kind, wrong):
    path, convolutions = tmp_path / "compact.safetensors", kind == "convolution"
    imager = unrolled_camera() if convolutions else camera_of(random_patterns(32, 16, 0.25))
    write_model(path, imager, compact=True)
    key = f"reconstructor.{'phases.0.before' if convolutions else 'layers.0'}.weight"
    _, tensors = take_apart(path)
    change, told = WRONG_BYTES[wrong]
    weights, scale = change(tensors[key], tensors[f"{key}.scale"])
    changes = {key: weights, f"{key}.scale": scale}
    replaced(path, **{k: t if t is None else t.contiguous() for k, t in changes.items()})
    with refused(path, told):
        read_model(path)


def test_a_scale_of_weights_that_are_never_bytes_is_refused(tmp_path, refused):
    path = tmp_path / "compact.safetensors"
    imager = adaptive_imager()
    write_model(path, imager, compact=True)
    key, *_ = (
        f"allocation.{key}" for key, value in imager.camera.predictor.state_dict().items()
        if value.ndim == 4 and value[0].numel() % 8 == 0
    )  # fmt: skip
    rows, *columns = take_apart(path)[1][key].shape
    replaced(path, **{
        key: torch.ones(rows, *columns, dtype=torch.int8),
        f"{key}.scale": torch.ones(rows, np.prod(columns) // 8).half(),
    })  # fmt: skip
    with refused(path, "weights are not those"):
        read_model(path)


# Rates


def test_the_models_own_rate_is_the_model_itself(small_imager):
    same = small_imager.at_rate(0.25)
    np.testing.assert_array_equal(same.phi, small_imager.phi)


def test_a_rate_above_the_models_is_refused_with_both_numbers_of_rows(small_imager, refused):
    with refused("rate 0.6", "38", "16", "0.25"):
        small_imager.at_rate(0.6)


def test_a_rate_below_the_models_is_refused_where_the_network_cannot(small_imager, refused):
    with refused("small", "0.25", "0.1"):
        small_imager.at_rate(0.1)


@pytest.mark.parametrize("rate", [0.0, -0.1, float("nan"), float("inf"), -float("inf")])
def test_what_is_no_rate_is_refused(small_imager, refused, rate):
    with refused("rate"):
        small_imager.at_rate(rate)


def test_a_network_for_any_rate_uses_the_first_patterns(small_imager, monkeypatch):
    monkeypatch.setattr(MlpReconstructor, "any_rate", True)
    lower = small_imager.at_rate(0.1)
    np.testing.assert_array_equal(lower.phi, small_imager.phi[:6])  # ⌊6.4⌋
    assert torch.equal(lower.operator.alpha, small_imager.operator.alpha[:6])


def test_devices_that_are_not_there_are_told_in_one_line():
    with pytest.raises(TersenseError, match="device must be auto, cpu or cuda, got 'gpu'"):
        tersense.load("paper-r25", device="gpu")
    assert tersense.load("paper-r25", device="auto").device.type in ("cpu", "cuda")


def test_buffers_that_are_computed_and_not_stored_are_there_after_loading(tmp_path, monkeypatch):
    """As in a reconstructor of one's own, with `register_buffer(…, persistent=False)`."""

    def build(self, *arguments, original=MlpReconstructor.__init__):
        original(self, *arguments)
        self.register_buffer("computed", torch.arange(5.0), persistent=False)

    monkeypatch.setattr(MlpReconstructor, "__init__", build)
    imager = tersense.Imager(
        "own", random_patterns(4, 8, 0.3), torch.ones(4), 116.0, 68.0,
        MlpReconstructor(Geometry(8, 8), 4, MlpOptions(hidden=(8,))),
    )  # fmt: skip
    write_model(tmp_path / "own.safetensors", imager)
    again = read_model(tmp_path / "own.safetensors")
    assert torch.equal(again.reconstructor.computed, torch.arange(5.0))
    y = imager.sense(images.camera()[:16, :24])
    np.testing.assert_allclose(again.estimate(y), imager.estimate(y), atol=0.2)
