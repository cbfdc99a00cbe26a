import os

import h5py
import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import chisquare
from skimage import data as skimage_data

from tersense.errors import TersenseError
from tersense.training import packing
from tersense.training.crops import CropSampler, PackedImages
from tersense.training.packing import open_images, resolve_source


def pack(images):
    """Build a store by hand, so that the sampler is tested without files."""
    sizes = torch.tensor([image.shape for image in images])
    areas = [image.size for image in images]
    starts = torch.tensor([sum(areas[:place]) for place in range(len(areas))])
    pixels = torch.from_numpy(np.concatenate([image.ravel() for image in images]))
    return PackedImages(pixels, starts, sizes[:, 0].clone(), sizes[:, 1].clone())


def unpack(store):
    """Cut a store into its images again."""
    pixels = store.pixels.numpy()
    index = zip(store.starts.tolist(), store.heights.tolist(), store.widths.tolist(), strict=True)
    return [pixels[start : start + h * w].reshape(h, w) for start, h, w in index]


def as_bytes(crops):
    """Return crops as a list that can be sorted and counted."""
    return [crop.tobytes() for crop in crops.numpy()]


def symmetries(square):
    """Return the 8 turned and mirrored forms of a square."""
    return {np.rot90(form, k).tobytes() for form in (square, square.T) for k in range(4)}


@pytest.fixture
def images(rng):
    shapes = [(9, 14), (20, 8), (8, 8), (17, 11)]
    return [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]


@pytest.fixture
def folder(tmp_path, images):
    """The four images, one of them in a folder below."""
    folder = tmp_path / "photographs"
    (folder / "below").mkdir(parents=True)
    for name, image in zip(["a", "b", "below/c", "d"], images, strict=True):
        Image.fromarray(image).save(folder / f"{name}.png")
    return folder


def test_held_out_images_are_the_others(images):
    store = pack(images)
    rest, held_out = store.split(2)
    assert [i.tobytes() for i in unpack(rest)] == [i.tobytes() for i in images[::2]]
    assert [i.tobytes() for i in unpack(held_out)] == [i.tobytes() for i in images[1::2]]


# Folders


def test_a_folder_is_packed_image_by_image(folder, images):
    store = open_images(folder, crop=8)
    assert len(store) == 4
    packed = {image.tobytes(): image.shape for image in unpack(store)}
    assert packed == {image.tobytes(): image.shape for image in images}
    assert store.skipped == {}


def test_color_images_are_packed_gray(tmp_path):
    astronaut = Image.fromarray(skimage_data.astronaut()[:50, :60])
    astronaut.save(tmp_path / "a.png")
    (packed,) = unpack(open_images(tmp_path, crop=32))
    np.testing.assert_array_equal(packed, np.asarray(astronaut.convert("L")))


@pytest.mark.parametrize("cached", [False, True])
def test_images_are_packed_in_every_scale_that_is_large_enough(tmp_path, cached):
    camera = Image.fromarray(skimage_data.camera()[:90, :120])
    (tmp_path / "images").mkdir()
    camera.save(tmp_path / "images" / "a.png")
    cache = tmp_path / "cache" if cached else ""
    store = open_images(tmp_path / "images", 32, cache, scales=[1.0, 0.5, 0.2])
    whole, half = unpack(store)
    np.testing.assert_array_equal(whole, np.asarray(camera))
    np.testing.assert_array_equal(half, camera.resize((60, 45), Image.Resampling.LANCZOS))
    assert store.skipped == {"smaller than 32 pixels": 1}
    assert len(open_images(tmp_path / "images", 32, cache)) == 1  # not the cache of other scales


def test_patches_have_one_scale(tmp_path):
    path = write_hdf5(tmp_path / "a.h5", np.zeros((4, 64), np.uint8))
    with pytest.raises(TersenseError, match=r"data.scales must be \[1.0\] for patches"):
        open_images(path, 8, scales=(1.0, 0.5))


def test_what_cannot_be_used_is_counted_and_never_fatal(folder):
    Image.new("L", (7, 100)).save(folder / "narrow.png")
    Image.new("L", (100, 7)).save(folder / "below" / "low.png")
    (folder / "empty.jpg").touch()
    (folder / "text.png").write_text("no image")
    (folder / "cut.png").write_bytes((folder / "a.png").read_bytes()[:60])
    (folder / "notes.txt").write_text("no image")
    store = open_images(folder, crop=8)
    assert len(store) == 4
    assert sum(store.skipped.values()) == 6
    assert sorted(store.skipped.values()) == [1, 2, 3]  # no image, too small, unreadable
    (too_small,) = [why for why, count in store.skipped.items() if count == 2]
    assert "8" in too_small


@pytest.mark.parametrize("cached", [False, True])
def test_a_dangling_link_is_never_fatal(tmp_path, folder, cached):
    (folder / "gone.png").symlink_to(folder / "nowhere.png")
    store = open_images(folder, crop=8, cache=tmp_path / "cache" if cached else "")
    assert len(store) == 4
    assert all(count > 0 for count in store.skipped.values())


@pytest.mark.parametrize("cached", [False, True])
def test_a_folder_named_like_an_image_is_not_counted_as_one(tmp_path, folder, cached):
    (folder / "album.png").mkdir()
    store = open_images(folder, crop=8, cache=tmp_path / "cache" if cached else "")
    assert len(store) == 4
    assert store.skipped == {}


def test_an_empty_folder_is_a_clear_error(tmp_path, refused):
    with refused(tmp_path):
        open_images(tmp_path, crop=8)


def test_a_folder_of_broken_and_tiny_files_is_a_clear_error_with_the_reasons(tmp_path, refused):
    (tmp_path / "broken.png").write_text("no image")
    Image.new("L", (7, 7)).save(tmp_path / "tiny.png")
    with refused(tmp_path, "8×8", "1 unreadable", "1 smaller"):
        open_images(tmp_path, crop=8)


@pytest.mark.parametrize("source", ["", "no/such/folder", "no-such-file.h5"])
def test_missing_data_is_a_clear_error(refused, source):
    with refused("data.train"):
        open_images(source, crop=8)


def test_a_single_image_is_no_folder(folder, refused):
    with refused(folder / "a.png", "folder"):
        open_images(folder / "a.png", crop=8)


def test_the_track_sees_every_file(folder):
    seen = []

    def track(items, label, total):
        assert total == 4
        for item in items:
            seen.append(item)
            yield item

    open_images(folder, crop=8, track=track)
    assert len(seen) == 4


# Packages


def test_the_images_of_scikit_image_are_found():
    store = open_images("package:skimage/data", crop=64)
    camera = skimage_data.camera()
    assert len(store) > 10
    assert any(np.array_equal(image, camera) for image in unpack(store))


@pytest.mark.parametrize("package", ["no_such_package", "no_such_package.inner"])
def test_an_unknown_package_is_a_clear_error(refused, package):
    with refused(package):
        resolve_source(f"package:{package}/data")


@pytest.mark.parametrize("source", ["package:", "package:/data", "package:skimage/nowhere"])
def test_a_package_or_folder_that_is_not_there_is_a_clear_error(refused, source):
    with refused(source):
        resolve_source(source)


# Crops


@pytest.mark.parametrize("crop", [1, 5, 8])
@pytest.mark.parametrize("samples", [0, 300])
def test_every_crop_is_in_its_image_where_its_location_says(images, crop, samples):
    store = pack(images)
    locations = CropSampler(store, crop, samples, seed=3).epoch(0)
    crops = store.crops(locations, crop).numpy()
    assert crops.shape == (samples or len(images), crop, crop)
    assert crops.dtype == np.uint8
    for found, start in zip(crops, locations[:, 0].tolist(), strict=True):
        which = int((store.starts <= start).sum()) - 1
        row, column = divmod(start - int(store.starts[which]), images[which].shape[1])
        expected = images[which][row : row + crop, column : column + crop]
        np.testing.assert_array_equal(found, expected)


def test_all_possible_crops_are_equally_likely():
    # All pixels differ, so the first one tells the crop: 2·3 + 3·1 + 1 = 10 places.
    shapes, crop = [(4, 5), (5, 3), (3, 3)], 3
    values = np.arange(20 + 15 + 9, dtype=np.uint8)
    images = [
        part.reshape(shape) for part, shape in zip(np.split(values, [20, 35]), shapes, strict=True)
    ]
    possible = [
        image[row, column]
        for image in images
        for row in range(image.shape[0] - crop + 1)
        for column in range(image.shape[1] - crop + 1)
    ]
    store = pack(images)
    crops = store.crops(CropSampler(store, crop, 50_000, seed=1).epoch(0), crop)
    counts = np.bincount(crops[:, 0, 0].numpy(), minlength=values.size)
    assert counts[possible].sum() == 50_000
    assert chisquare(counts[possible]).pvalue > 1e-4


def test_balanced_crops_come_from_all_images_alike_and_all_places_in_them():
    small, large = np.full((3, 3), 255, np.uint8), np.arange(20, dtype=np.uint8).reshape(4, 5)
    store = pack([small, large])
    sampler = CropSampler(store, 3, 30_000, seed=1, balanced=True)
    firsts = store.crops(sampler.epoch(0), 3)[:, 0, 0].numpy()
    counts = np.bincount(firsts, minlength=256)[[255, 0, 1, 2, 5, 6, 7]]
    assert counts.sum() == 30_000
    assert chisquare(counts, 30_000 * np.array([1 / 2] + [1 / 12] * 6)).pvalue > 1e-4


def test_no_samples_take_one_crop_from_every_image(images):
    store = pack(images)
    sampler = CropSampler(store, 8, samples=0, fresh=True, augment=True, seed=5)
    assert len(sampler) == len(images)
    for epoch in range(5):
        found = sorted(as_bytes(store.crops(sampler.epoch(epoch), 8)))
        for image in images:
            windows = np.lib.stride_tricks.sliding_window_view(image, (8, 8)).reshape(-1, 8, 8)
            possible = set().union(*(symmetries(window) for window in windows))
            assert sum(crop in possible for crop in found) == 1


def test_without_samples_the_place_in_an_image_is_uniform():
    store = pack([np.arange(20, dtype=np.uint8).reshape(4, 5)] * 6000)
    counts = np.bincount(store.crops(CropSampler(store, 3, 0).epoch(0), 3)[:, 0, 0].numpy())
    assert np.flatnonzero(counts).tolist() == [0, 1, 2, 5, 6, 7]
    assert chisquare(counts[counts > 0]).pvalue > 1e-4


def test_augmentation_gives_exactly_the_eight_symmetries_equally_often():
    square = np.arange(25, dtype=np.uint8).reshape(5, 5)
    store = pack([np.zeros((6, 7), np.uint8), square])
    locations = CropSampler(store, 5, 20_000, augment=True, seed=2).epoch(0)
    forms = [form for form in as_bytes(store.crops(locations, 5)) if any(form)]
    found, counts = np.unique(np.array(forms, dtype="V25"), return_counts=True)
    assert {form.tobytes() for form in found} == symmetries(square)
    assert chisquare(counts).pvalue > 1e-4


def test_without_augmentation_crops_are_upright():
    square = np.arange(25, dtype=np.uint8).reshape(5, 5)
    store = pack([square])
    assert set(as_bytes(store.crops(CropSampler(store, 5, 100).epoch(0), 5))) == {square.tobytes()}


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_the_same_seed_and_epoch_give_the_same_crops(images, fresh, epoch):
    def epoch_of(seed):
        sampler = CropSampler(pack(images), 5, 200, fresh=fresh, augment=True, seed=seed)
        return sampler.epoch(epoch)

    assert torch.equal(epoch_of(4), epoch_of(4))
    assert not torch.equal(epoch_of(4), epoch_of(5))


def test_an_epoch_does_not_depend_on_those_before_it(images):
    one, other = (CropSampler(pack(images), 5, 200, augment=True) for _ in range(2))
    for earlier in range(3):
        one.epoch(earlier)
    assert torch.equal(one.epoch(3), other.epoch(3))


@pytest.mark.parametrize("augment", [False, True])
def test_epochs_shuffle_the_same_crops(images, augment):
    sampler = CropSampler(pack(images), 5, 200, augment=augment)
    first, second, third = (sampler.epoch(number).tolist() for number in range(3))
    assert first != second != third != first
    assert sorted(first) == sorted(second) == sorted(third)


def test_fresh_epochs_draw_other_crops(images):
    sampler = CropSampler(pack(images), 5, 200, fresh=True)
    first, second = (sampler.epoch(number).tolist() for number in range(2))
    assert sorted(first) != sorted(second)


# HDF5


def write_hdf5(path, patches, name="patches"):
    with h5py.File(path, "w") as file:
        file[name] = patches
    return path


@pytest.mark.parametrize("suffix", [".h5", ".hdf5", ".H5"])
def test_flat_patches_are_square_images(tmp_path, rng, suffix):
    patches = rng.integers(0, 256, (7, 64), dtype=np.uint8)
    store = open_images(write_hdf5(tmp_path / f"a{suffix}", patches), crop=8)
    np.testing.assert_array_equal(np.stack(unpack(store)), patches.reshape(7, 8, 8))


def test_patches_of_two_dimensions_keep_their_shape(tmp_path, rng):
    patches = rng.integers(0, 256, (7, 9, 12), dtype=np.uint8)
    store = open_images(write_hdf5(tmp_path / "a.h5", patches), crop=8)
    np.testing.assert_array_equal(np.stack(unpack(store)), patches)


def test_patches_can_be_cached(tmp_path, rng):
    patches = rng.integers(0, 256, (7, 9, 12), dtype=np.uint8)
    path = write_hdf5(tmp_path / "a.h5", patches)
    for _ in range(2):
        store = open_images(path, crop=8, cache=tmp_path / "cache")
        np.testing.assert_array_equal(np.stack(unpack(store)), patches)


@pytest.mark.parametrize(
    "patches",
    [
        np.zeros((3, 64), np.float32),
        np.zeros((3, 64), np.int8),
        np.zeros((3, 60), np.uint8),
        np.zeros((64,), np.uint8),
        np.zeros((3, 8, 8, 1), np.uint8),
        np.zeros((0, 64), np.uint8),
        np.uint8(0),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_patches_of_a_wrong_type_or_shape_are_refused(tmp_path, refused, patches):
    path = write_hdf5(tmp_path / "a.h5", patches)
    with refused(path, "patches", "uint8"):
        open_images(path, crop=8)


def test_patches_smaller_than_the_crop_are_refused(tmp_path, refused):
    path = write_hdf5(tmp_path / "a.h5", np.zeros((3, 8, 7), np.uint8))
    with refused("7×8", "data.crop"):
        open_images(path, crop=8)


def test_a_missing_dataset_is_refused(tmp_path, refused):
    path = write_hdf5(tmp_path / "a.h5", np.zeros((3, 64), np.uint8), name="pictures")
    with refused(path, "patches"):
        open_images(path, crop=8)


def test_a_group_called_patches_is_refused(tmp_path, refused):
    path = write_hdf5(tmp_path / "a.h5", np.zeros((3, 64), np.uint8), name="patches/train")
    with refused(path, "patches"):
        open_images(path, crop=8)


@pytest.mark.parametrize("content", [b"", b"no HDF5 file", b"\x89HDF\r\n\x1a\n"])
def test_what_is_no_hdf5_file_is_refused(tmp_path, refused, content):
    (tmp_path / "a.h5").write_bytes(content)
    with refused(tmp_path / "a.h5"):
        open_images(tmp_path / "a.h5", crop=8)


# The cache


def equal(one, other):
    parts = ("pixels", "starts", "heights", "widths")
    return all(torch.equal(getattr(one, part), getattr(other, part)) for part in parts)


def test_the_cached_store_equals_the_one_in_memory(tmp_path, folder):
    (folder / "broken.png").touch()
    in_memory = open_images(folder, crop=8)
    for _ in range(2):
        cached = open_images(folder, crop=8, cache=tmp_path / "cache")
        assert equal(cached, in_memory)
        assert cached.skipped == in_memory.skipped == {"unreadable": 1}


def test_the_second_opening_decodes_nothing(tmp_path, folder, monkeypatch):
    first = open_images(folder, crop=8, cache=tmp_path / "cache")

    def decode(path):
        pytest.fail(f"{path} was decoded again")

    monkeypatch.setattr(packing, "read_gray", decode)
    assert equal(open_images(folder, crop=8, cache=tmp_path / "cache"), first)


def test_a_new_image_renews_the_cache(tmp_path, folder):
    open_images(folder, crop=8, cache=tmp_path / "cache")
    Image.new("L", (30, 30), 77).save(folder / "new.png")
    renewed = open_images(folder, crop=8, cache=tmp_path / "cache")
    assert len(renewed) == 5
    assert equal(renewed, open_images(folder, crop=8))


def test_an_image_taken_away_renews_the_cache(tmp_path, folder):
    open_images(folder, crop=8, cache=tmp_path / "cache")
    (folder / "b.png").unlink()
    assert len(open_images(folder, crop=8, cache=tmp_path / "cache")) == 3


def test_an_image_replaced_by_one_of_the_same_size_renews_the_cache(tmp_path):
    folder, cache = tmp_path / "photographs", tmp_path / "cache"
    folder.mkdir()
    for date, shade in enumerate((50, 60)):
        Image.new("L", (9, 9), shade).save(folder / "a.bmp")
        os.utime(folder / "a.bmp", (date, date))
        store = open_images(folder, crop=8, cache=cache)
        assert set(store.pixels.tolist()) == {shade}


def test_another_crop_renews_the_cache(tmp_path, folder):
    open_images(folder, crop=8, cache=tmp_path / "cache")
    assert len(open_images(folder, crop=9, cache=tmp_path / "cache")) == 2


def interrupted(items, label, total):
    """Track the first item, then be stopped by the user."""
    yield next(iter(items))
    raise KeyboardInterrupt


def test_interrupted_packing_leaves_nothing_half_made(tmp_path, folder):
    cache = tmp_path / "cache"
    with pytest.raises(KeyboardInterrupt):
        open_images(folder, crop=8, cache=cache, track=interrupted)
    assert [path.name for path in cache.iterdir()] == [".lock"]
    assert equal(open_images(folder, crop=8, cache=cache), open_images(folder, crop=8))


def test_interrupted_renewal_is_made_good_by_the_next_opening(tmp_path, folder):
    cache = tmp_path / "cache"
    open_images(folder, crop=8, cache=cache)
    Image.new("L", (30, 30), 77).save(folder / "0.png")
    with pytest.raises(KeyboardInterrupt):
        open_images(folder, crop=8, cache=cache, track=interrupted)
    assert equal(open_images(folder, crop=8, cache=cache), open_images(folder, crop=8))


def test_new_pixels_are_never_used_with_an_old_index(tmp_path, folder, monkeypatch):
    cache = tmp_path / "cache"
    open_images(folder, crop=8, cache=cache)
    Image.new("L", (30, 30), 77).save(folder / "0.png")

    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(packing, "save_file", stop)
        with pytest.raises(KeyboardInterrupt):
            open_images(folder, crop=8, cache=cache)
    (folder / "0.png").unlink()  # as it was when the old index was written
    assert equal(open_images(folder, crop=8, cache=cache), open_images(folder, crop=8))


@pytest.mark.parametrize("damage", ["index cut", "index gone", "pixels cut", "pixels gone"])
def test_a_damaged_cache_is_made_anew(tmp_path, folder, damage):
    cache = tmp_path / "cache"
    open_images(folder, crop=8, cache=cache)
    part, _, how = damage.partition(" ")
    (file,) = cache.glob(f"{part}*")
    content = file.read_bytes()
    file.unlink()
    if how == "cut":
        file.write_bytes(content[: len(content) // 2])
    assert equal(open_images(folder, crop=8, cache=cache), open_images(folder, crop=8))


def test_a_file_in_the_place_of_the_cache_is_a_clear_error(tmp_path, folder, refused):
    (tmp_path / "cache").touch()
    with refused(tmp_path / "cache"):
        open_images(folder, crop=8, cache=tmp_path / "cache")


def test_changing_a_cached_store_does_not_change_the_file(tmp_path, folder):
    store = open_images(folder, crop=8, cache=tmp_path / "cache")
    store.pixels.fill_(0)
    del store
    assert equal(open_images(folder, crop=8, cache=tmp_path / "cache"), open_images(folder, crop=8))


# Statistics


@pytest.mark.parametrize("count", [1, 1000, 2**20 + 5])
def test_mean_and_deviation_are_numpys(rng, count):
    pixels = (rng.beta(2, 3, (1, count)) * 255).astype(np.uint8)
    mean, std = pack([pixels]).mean_and_std()
    assert mean == pytest.approx(pixels.mean(), rel=1e-12)
    assert std == pytest.approx(pixels.std() or 1.0, rel=1e-12)


def test_flat_images_have_a_deviation_to_divide_by():
    mean, std = pack([np.full((5, 5), 9, np.uint8)]).mean_and_std()
    assert mean == pytest.approx(9)
    assert std > 0
