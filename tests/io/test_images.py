import io
import struct
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image
from skimage import data as images

from tersense.errors import TersenseError, TersenseWarning
from tersense.io.images import (
    check_image,
    find_images,
    from_planes,
    mirror_border,
    read_gray,
    read_image,
    to_gray,
    to_pixels,
    to_planes,
    write_image,
)


@pytest.fixture
def gray(rng):
    return rng.integers(0, 256, (13, 9), dtype=np.uint8)


@pytest.fixture
def color(rng):
    return rng.integers(0, 256, (13, 9, 3), dtype=np.uint8)


def encode(array, format, **options):
    """Return the bytes of an image file."""
    file = io.BytesIO()
    Image.fromarray(array).save(file, format, **options)
    return file.getvalue()


# Every mode


def test_gray_is_read_as_it_is(tmp_path, gray):
    Image.fromarray(gray).save(tmp_path / "a.png")
    image = read_image(tmp_path / "a.png")
    assert image.dtype == np.uint8
    np.testing.assert_array_equal(image, gray)


def test_color_is_read_as_it_is(tmp_path, color):
    Image.fromarray(color).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(str(tmp_path / "a.png")), color)


@pytest.mark.parametrize("shade", [0, 128, 255])
def test_transparency_is_dropped_from_color(tmp_path, color, shade):
    alpha = np.full((*color.shape[:2], 1), shade, np.uint8)
    Image.fromarray(np.concatenate([color, alpha], axis=2)).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), color)


def test_transparency_is_dropped_from_gray(tmp_path, gray):
    image = Image.fromarray(gray).convert("LA")
    image.putalpha(Image.fromarray(gray[::-1].copy()))
    image.save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), gray)


def test_a_palette_is_resolved(tmp_path, rng):
    indices = rng.integers(0, 5, (6, 7), dtype=np.uint8)
    palette = rng.integers(0, 256, (5, 3), dtype=np.uint8)
    image = Image.fromarray(indices).convert("P")
    image.putdata(indices.ravel().tolist())
    image.putpalette(palette.tobytes())
    image.save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), palette[indices])


def test_one_bit_becomes_black_and_white(tmp_path, rng):
    bits = rng.random((6, 11)) < 0.5
    Image.fromarray(bits).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), np.where(bits, 255, 0))


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bit_gray_keeps_its_upper_eight_bits(tmp_path, suffix):
    deep = np.array([[0, 255, 256, 511], [32768, 65279, 65280, 65535]], np.uint16)
    Image.fromarray(deep).save(tmp_path / f"a{suffix}")
    expected = [[0, 0, 1, 1], [128, 254, 255, 255]]
    np.testing.assert_array_equal(read_image(tmp_path / f"a{suffix}"), expected)


def test_sixteen_bit_pgm_keeps_its_upper_eight_bits(tmp_path):
    deep = np.array([[0, 255, 256], [32768, 65280, 65535]], ">u2")
    (tmp_path / "a.pgm").write_bytes(b"P5 3 2 65535\n" + deep.tobytes())
    np.testing.assert_array_equal(read_image(tmp_path / "a.pgm"), [[0, 0, 1], [128, 255, 255]])


def test_a_cmyk_jpeg_is_read_as_its_colors(tmp_path):
    Image.new("CMYK", (16, 8), (0, 255, 255, 0)).save(tmp_path / "a.jpg")  # no cyan: red
    image = read_image(tmp_path / "a.jpg")
    assert image.shape == (8, 16, 3)
    np.testing.assert_allclose(image.astype(int), np.full((8, 16, 3), (255, 0, 0)), atol=3)


@pytest.mark.parametrize(
    ("orientation", "upright"),
    [
        (1, lambda a: a),
        (2, lambda a: a[:, ::-1]),
        (3, lambda a: a[::-1, ::-1]),
        (4, lambda a: a[::-1]),
        (5, lambda a: a.swapaxes(0, 1)),
        (6, lambda a: np.rot90(a, -1)),
        (7, lambda a: a[::-1, ::-1].swapaxes(0, 1)),
        (8, np.rot90),
    ],
)
def test_the_orientation_a_camera_noted_is_applied(tmp_path, color, orientation, upright):
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / "plain.jpg").write_bytes(encode(color, "JPEG"))
    (tmp_path / "noted.jpg").write_bytes(encode(color, "JPEG", exif=exif))
    plain, noted = read_image(tmp_path / "plain.jpg"), read_image(tmp_path / "noted.jpg")
    np.testing.assert_array_equal(noted, upright(plain))


def test_images_that_were_read_can_be_written_into(tmp_path, gray):
    Image.fromarray(gray).save(tmp_path / "a.png")
    image = read_image(tmp_path / "a.png")
    image[0, 0] = 7
    assert image[0, 0] == 7


# Gray


def test_gray_is_pillows_luma():
    astronaut = images.astronaut()
    expected = np.asarray(Image.fromarray(astronaut).convert("L"))
    np.testing.assert_array_equal(to_gray(astronaut), expected)


def test_gray_is_the_formula_within_rounding(color):
    expected = color @ np.array([0.299, 0.587, 0.114])
    assert np.abs(to_gray(color) - expected).max() <= 0.51


def test_gray_stays_as_it_is(gray):
    np.testing.assert_array_equal(to_gray(gray), gray)


def test_equal_channels_give_their_value():
    levels = np.arange(256, dtype=np.uint8)[None, :, None].repeat(3, axis=2)
    np.testing.assert_array_equal(to_gray(levels)[0], np.arange(256))


def test_read_gray_turns_color_gray(tmp_path, color):
    Image.fromarray(color).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_gray(tmp_path / "a.png"), to_gray(color))


# Files that are no images


@pytest.mark.parametrize(
    "content", [b"", b"text\nof two lines\n", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a"]
)
def test_what_is_no_image_is_one_clear_error(tmp_path, refused, content):
    (tmp_path / "a.png").write_bytes(content)
    with refused(tmp_path / "a.png"):
        read_image(tmp_path / "a.png")


def test_a_missing_file_is_a_clear_error(tmp_path, refused):
    with refused(tmp_path / "a.png"):
        read_image(tmp_path / "a.png")


def test_a_folder_is_no_image(tmp_path, refused):
    with refused(tmp_path):
        read_image(tmp_path)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "BMP", "WEBP", "PPM"])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_truncated_file_is_one_clear_error(tmp_path, refused, format, share):
    content = encode(images.astronaut()[:64, :64], format)
    (tmp_path / "a.img").write_bytes(content[: int(share * len(content))])
    with refused(tmp_path / "a.img"):
        read_image(tmp_path / "a.img")


@pytest.mark.parametrize("format", ["PNG", "JPEG", "TIFF", "BMP", "WEBP", "GIF", "PPM"])
def test_damaged_bytes_give_an_image_or_a_clear_error(tmp_path, rng, color, format):
    exif = Image.Exif()
    exif[0x0112] = 6
    options = {"exif": exif} if format in ("PNG", "JPEG", "WEBP") else {}
    content = encode(color, format, **options)
    for _ in range(150):
        damaged = bytearray(content)
        for place in rng.integers(0, min(len(damaged), 300), size=rng.integers(1, 4)):
            damaged[place] = rng.integers(256)
        (tmp_path / "a.img").write_bytes(damaged)
        message = "an image"
        try:
            check_image(read_image(tmp_path / "a.img"))
        except TersenseError as error:
            message = str(error)
        assert len(message.splitlines()) == 1


def test_a_small_file_that_claims_a_huge_image_is_refused(tmp_path, refused):
    def chunk(kind, content):
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    with refused(tmp_path / "a.png", "large"):
        read_image(tmp_path / "a.png")


# Writing


@pytest.mark.parametrize("suffix", [".png", ".PNG", ".bmp", ".tif", ".tiff", ".pnm"])
@pytest.mark.parametrize("kind", ["gray", "color"])
def test_what_is_written_is_read_again(tmp_path, request, suffix, kind):
    image = request.getfixturevalue(kind)
    write_image(tmp_path / f"a{suffix}", image)
    np.testing.assert_array_equal(read_image(tmp_path / f"a{suffix}"), image)


@pytest.mark.parametrize("suffix", [".jpg", ".jpeg", ".webp"])
def test_lossy_formats_keep_smooth_images_nearly(tmp_path, suffix):
    ramp = np.add.outer(np.arange(32), np.arange(48)).astype(np.uint8) * 2
    write_image(tmp_path / f"a{suffix}", ramp)
    np.testing.assert_allclose(read_gray(tmp_path / f"a{suffix}").astype(int), ramp, atol=8)


@pytest.mark.parametrize("name", ["a.xyz", "a", "a.png.txt"])
def test_an_unknown_ending_is_refused_and_nothing_written(tmp_path, refused, gray, name):
    with refused(tmp_path / name, ".png"):
        write_image(tmp_path / name, gray)
    assert list(tmp_path.iterdir()) == []


def test_writing_into_a_missing_folder_is_a_clear_error(tmp_path, refused, gray):
    with refused(tmp_path / "missing"):
        write_image(tmp_path / "missing" / "a.png", gray)


def test_an_image_too_large_for_its_format_is_a_clear_error(tmp_path, refused):
    with refused(tmp_path / "a.jpg"):
        write_image(tmp_path / "a.jpg", np.zeros((1, 70_000), np.uint8))
    assert list(tmp_path.iterdir()) == []


# Planes and pixels


def test_planes_of_gray_are_the_image(gray):
    planes = to_planes(gray)
    assert planes.shape == (1, 13, 9)
    np.testing.assert_array_equal(from_planes(planes), gray)


def test_planes_of_color_are_its_channels(color):
    planes = to_planes(color)
    assert planes.shape == (3, 13, 9)
    np.testing.assert_array_equal(planes[1], color[:, :, 1])
    np.testing.assert_array_equal(from_planes(planes), color)


def test_pixels_are_rounded_to_the_nearest_value():
    levels = np.arange(256)
    for shift in (-0.49, 0.0, 0.49):
        pixels = to_pixels(levels + shift)
        assert pixels.dtype == np.uint8
        np.testing.assert_array_equal(pixels, levels)


def test_pixels_are_clipped():
    estimate = np.array([-1e9, -300.0, -0.6, 255.4, 255.6, 256.0, 1e9, -np.inf, np.inf])
    np.testing.assert_array_equal(to_pixels(estimate), [0, 0, 0, 255, 255, 255, 255, 0, 255])


@pytest.mark.parametrize("image", [np.zeros((1, 1), np.uint8), np.zeros((2, 3, 3), np.uint8)])
def test_check_image_lets_images_pass(image):
    np.testing.assert_array_equal(check_image(image), image)


def test_check_image_takes_what_numpy_can_turn_into_an_array(gray):
    np.testing.assert_array_equal(check_image(Image.fromarray(gray)), gray)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint16, np.bool_, np.int8])
def test_check_image_refuses_other_types_of_pixels(dtype):
    with pytest.raises(TypeError, match=np.dtype(dtype).name):
        check_image(np.zeros((4, 4), dtype))


@pytest.mark.parametrize("shape", [(), (4,), (4, 4, 1), (4, 4, 4), (3, 4, 4), (1, 4, 4, 3), (0, 4)])
def test_check_image_refuses_other_shapes(shape):
    with pytest.raises(ValueError, match="shape") as caught:
        check_image(np.zeros(shape, np.uint8))
    assert str(shape) in str(caught.value)


# Borders


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (2, 3), (7, 4), (33, 40)])
@pytest.mark.parametrize("border", [0, 1, 3, 32])
def test_a_border_mirrors_at_the_edge_without_repeating_it(rng, size, border):
    image = rng.integers(0, 256, size, dtype=np.uint8)

    def mirrored(length):
        # Light between two mirrors: back and forth with period 2(n - 1).
        inside = []
        for position in range(-border, length + border):
            while not 0 <= position < length:
                position = -position if position < 0 else 2 * (length - 1) - position
                position = 0 if length == 1 else position
            inside.append(position)
        return inside

    expected = image[np.ix_(mirrored(size[0]), mirrored(size[1]))]
    np.testing.assert_array_equal(mirror_border(image, border), expected)


# Folders


def test_find_images_looks_below_in_name_order(tmp_path):
    names = ["b.png", "a.JPG", "sub/c.webp", "sub/deeper/a.tiff"]
    for name in [*names, "notes.txt", "sub/data.npy", "png"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [path.relative_to(tmp_path).as_posix() for path in find_images(str(tmp_path))]
    assert found == ["a.JPG", "b.png", "sub/c.webp", "sub/deeper/a.tiff"]


def test_find_images_lists_files_only(tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "folder.png" / "a.png").touch()
    assert find_images(tmp_path) == [tmp_path / "folder.png" / "a.png"]


def test_find_images_refuses_a_missing_folder(tmp_path, refused):
    with refused(tmp_path / "missing"):
        find_images(tmp_path / "missing")


def test_find_images_refuses_a_file(tmp_path, refused):
    (tmp_path / "a.png").touch()
    with refused(tmp_path / "a.png", "folder"):
        find_images(tmp_path / "a.png")


def test_find_images_refuses_a_folder_without_images(tmp_path, refused):
    (tmp_path / "notes.txt").touch()
    with refused(tmp_path, ".png"):
        find_images(tmp_path)


def test_pixels_of_unknown_scale_are_refused(tmp_path, refused):
    Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(tmp_path / "real.tif")
    Image.fromarray(np.full((8, 8), 1 << 20, np.int32)).save(tmp_path / "wide.tif")
    with refused("floating-point"):
        read_image(tmp_path / "real.tif")
    with refused("32-bit"):
        read_image(tmp_path / "wide.tif")


def test_programs_in_disguise_are_not_run(tmp_path, refused):
    (tmp_path / "page.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n"
    )
    with refused("not a readable image"):
        read_image(tmp_path / "page.png")


def test_deep_gray_is_reduced_to_its_upper_bits_and_that_is_said(tmp_path):
    ramp = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    path = tmp_path / "deep.png"
    Image.fromarray(ramp).save(path)
    with pytest.warns(TersenseWarning, match=r"no value exceeds 4,095: say --depth 12"):
        dark = read_image(path)
    assert dark.max() == 15
    np.testing.assert_array_equal(read_image(path, depth=12), ramp)
    for depth in (10, 7, 17):
        with pytest.raises(TersenseError, match="depth must be"):
            read_image(path, depth=depth)


def test_a_tiff_that_states_its_depth_is_believed(tmp_path):
    ramp = np.arange(1024, dtype=np.uint16).reshape(32, 32)
    Image.fromarray(ramp).save(tmp_path / "ten.tif", tiffinfo={281: 1023})
    with pytest.warns(TersenseWarning, match="10 bits per pixel"):
        np.testing.assert_array_equal(read_image(tmp_path / "ten.tif"), ramp >> 2)


def test_what_is_dropped_is_said(tmp_path):
    rgba = np.random.default_rng(0).integers(0, 256, (9, 7, 4), dtype=np.uint8)
    Image.fromarray(rgba).save(tmp_path / "alpha.png")
    with pytest.warns(TersenseWarning, match="transparency is dropped"):
        np.testing.assert_array_equal(read_image(tmp_path / "alpha.png"), rgba[..., :3])
    (tmp_path / "deep.ppm").write_bytes(b"P6\n1 1\n65535\n" + bytes([1, 0, 2, 0, 3, 0]))
    Image.fromarray(rgba[..., :3]).save(tmp_path / "plain.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_image(tmp_path / "plain.png")
        read_gray(tmp_path / "alpha.png")  # of thousands for a training run: nothing is said


def test_importing_silences_nobody_and_programs_can():
    code = (
        "import logging, warnings, tersense.io.images as images\n"
        "before = list(warnings.filters), logging.getLogger('PIL').level\n"
        "images.silence_decoders()\n"
        "assert before != (list(warnings.filters), logging.getLogger('PIL').level)\n"
        "assert before[1] == logging.NOTSET\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
