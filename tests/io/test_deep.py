"""Images of 9 to 16 bits per pixel: values are those of the file, in and out."""

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
import tifffile  # which scikit-image needs
from PIL import Image

from tersense.errors import TersenseError, TersenseWarning
from tersense.io.deep import require_depth
from tersense.io.images import (
    check_image,
    decode_image,
    read_gray,
    read_image,
    to_gray,
    to_pixels,
    to_screen,
    write_image,
)
from tersense.io.marks import is_marked

SUFFIXES = (".png", ".tif", ".TIFF", ".pgm", ".ppm", ".pnm")


def pixels(depth, *shape, seed=0):
    """Return random pixels; black and white are among them."""
    image = np.random.default_rng(seed).integers(0, 2**depth, shape).astype(np.uint16)
    image.flat[0], image.flat[1] = 0, 2**depth - 1
    return image


def png(image):
    """Encode 16-bit RGB or RGBA as other programs do, with every filter of PNG but Paeth."""

    def chunk(kind, content):
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    height, width, channels = image.shape
    rows = image.astype(">u2").view(np.uint8).reshape(height, -1).astype(int)
    lines = []
    for y, row in enumerate(rows):
        left = np.pad(row, (2 * channels, 0))[: row.size]
        above = rows[y - 1] if y else 0 * row
        guess = [0 * row, left, above, (left + above) // 2][y % 4]
        lines.append(bytes([y % 4]) + ((row - guess) % 256).astype(np.uint8).tobytes())
    head = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(b"".join(lines)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + body + chunk(b"IEND", b"")


def silent(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_image(*arguments, **options)


# Reading what others wrote


@pytest.mark.parametrize("depth", range(8, 17))
@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_gray_of_every_depth_is_read_as_it_is(tmp_path, suffix, depth):
    image = pixels(depth, 13, 9)
    Image.fromarray(image).save(tmp_path / f"a{suffix}")
    again = silent(tmp_path / f"a{suffix}", depth=depth)
    assert again.dtype == (np.uint8 if depth == 8 else np.uint16)
    np.testing.assert_array_equal(again, image)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("shape", [(13, 9), (13, 9, 3)])
def test_tiff_of_another_program_is_read_as_it_is(tmp_path, order, compression, shape):
    image, path = pixels(12, *shape), tmp_path / "a.tif"
    tifffile.imwrite(path, image, byteorder=order, compression=compression)
    np.testing.assert_array_equal(silent(path, depth=12), image)
    np.testing.assert_array_equal(silent(path, depth=16), image)


@pytest.mark.parametrize("channels", [3, 4])
def test_deep_color_of_png_is_read_as_it_is(tmp_path, channels):
    image = pixels(16, 13, 9, channels)
    (tmp_path / "a.png").write_bytes(png(image))
    again, note = decode_image(tmp_path / "a.png", depth=16)
    np.testing.assert_array_equal(again, image[..., :3])
    assert note == ("transparency is dropped" if channels == 4 else "")


@pytest.mark.parametrize("maximum", [1000, 4095, 65535])
@pytest.mark.parametrize("magic", ["P2", "P5", "P6"])
def test_pnm_of_any_maximum_is_read_as_it_is(tmp_path, magic, maximum):
    values = np.arange(36, dtype=np.uint16) * (maximum // 35)
    image = values.reshape((3, 4, 3) if magic == "P6" else (4, 9))
    content = (
        " ".join(map(str, values)).encode() if magic == "P2" else image.astype(">u2").tobytes()
    )
    height, width = image.shape[:2]
    head = f"{magic}\n{width} {height}\n{maximum}\n".encode()
    (tmp_path / "a.pnm").write_bytes(head + content)
    np.testing.assert_array_equal(silent(tmp_path / "a.pnm", depth=maximum.bit_length()), image)


def test_a_turned_camera_is_turned_back(tmp_path):
    image, exif = pixels(12, 5, 7), Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(image).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png", depth=12), np.rot90(image, -1))


# What cannot be


def test_files_of_eight_bits_have_no_more(tmp_path, refused):
    for name in ("a.png", "a.jpg", "a.bmp", "a.pgm", "a.tif"):
        write_image(tmp_path / name, np.zeros((8, 8), np.uint8))
        with refused(tmp_path / name, "it has 8 bits per pixel, not 12; leave the depth out"):
            read_image(tmp_path / name, depth=12)
        assert silent(tmp_path / name, depth=8).dtype == np.uint8


def test_values_beyond_the_depth_are_refused(tmp_path, refused):
    Image.fromarray(pixels(12, 8, 8)).save(tmp_path / "a.png")
    with refused("depth must be at least 12 bits for a value of 4,095, got 11"):
        read_image(tmp_path / "a.png", depth=11)


@pytest.mark.parametrize("depth", [0, 7, 17, 99, True, 12.0, float("nan"), "12", None])
def test_a_depth_is_a_whole_number_from_8_to_16(depth):
    with pytest.raises(TersenseError, match="depth must be from 8 to 16 bits per pixel, got"):
        require_depth(depth)


def test_deep_pixels_of_other_kinds_are_refused(tmp_path, refused):
    Image.fromarray(np.full((8, 8), 0.5, np.float32)).save(tmp_path / "real.tif")
    tifffile.imwrite(tmp_path / "signed.tif", np.full((8, 8), -5, np.int16))
    tifffile.imwrite(tmp_path / "inks.tif", np.zeros((8, 8, 4), np.uint16), photometric="separated")
    (tmp_path / "text.ppm").write_bytes(b"P3\n1 1\n4095\n1 2 3\n")
    for name, why in {"real.tif": "floating-point", "signed.tif": "32-bit", "inks.tif": "RGB",
                      "text.ppm": "text"}.items():  # fmt: skip
        with refused(tmp_path / name, why):
            read_image(tmp_path / name, depth=12)


def test_a_file_that_ends_too_early_is_refused(tmp_path, refused):
    (tmp_path / "a.ppm").write_bytes(b"P6\n4 4\n4095\n" + bytes(40))
    with refused(tmp_path / "a.ppm"):
        read_image(tmp_path / "a.ppm", depth=12)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint32, np.int64, np.bool_, np.uint8])
def test_arrays_of_other_types_are_refused(dtype):
    with pytest.raises(TypeError, match=f"12 bits must be uint16, got {np.dtype(dtype).name}"):
        check_image(np.zeros((4, 4), dtype), 12)


def test_uint16_needs_its_depth():
    with pytest.raises(TypeError, match="uint16 pixels must have a depth, got none"):
        check_image(np.zeros((4, 4), np.uint16))
    with pytest.raises(TersenseError, match=r"depth must be at least 13 bits .* 4,096, got 12"):
        check_image(np.full((4, 4), 4096, np.uint16), 12)
    with pytest.raises(ValueError, match="shape"):
        check_image(np.zeros((4, 4, 2), np.uint16), 12)
    assert check_image(np.full((4, 4), 255, np.uint16), 8).dtype == np.uint8
    assert check_image(np.full((4, 4), 7, ">u2"), 12).tolist() == [[7] * 4] * 4


# Eight bits remain the default


@pytest.mark.parametrize("shape", [(13, 9), (13, 9, 3)])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_that_state_their_depth_are_reduced_by_it(tmp_path, suffix, shape):
    image, path = pixels(12, *shape), tmp_path / f"a{suffix}"
    write_image(path, image, depth=12)
    with pytest.warns(TersenseWarning, match="reduced to the upper 8; --depth 1[26] keeps them"):
        small = read_image(path)
    assert small.dtype == np.uint8
    assert np.abs(small - image / 4095 * 255).max() <= 1


def test_an_odd_maximum_of_pgm_still_means_white(tmp_path):
    (tmp_path / "a.pgm").write_bytes(b"P5\n2 1\n1000\n" + np.array([0, 1000], ">u2").tobytes())
    assert read_image(tmp_path / "a.pgm").tolist() == [[0, 255]]


@pytest.mark.parametrize("note", ["0", "99", "70000", "-1", "4095.5", "４０９５", "nan", ""])
def test_a_note_that_states_nonsense_is_not_believed(tmp_path, note):
    from PIL.PngImagePlugin import PngInfo

    text, memory = PngInfo(), io.BytesIO()
    text.add_itxt("MaxSampleValue", note)
    Image.fromarray(pixels(16, 8, 8)).save(memory, "PNG", pnginfo=text)
    (tmp_path / "a.png").write_bytes(memory.getvalue())
    assert read_image(tmp_path / "a.png").max() == 255


def test_a_file_that_states_too_little_is_refused(tmp_path, refused):
    tifffile.imwrite(tmp_path / "a.tif", pixels(16, 8, 8), extratags=[(281, "H", 1, 4095, True)])
    with refused(tmp_path / "a.tif", "it states 12 bits per pixel, but holds 65,535"):
        read_image(tmp_path / "a.tif")
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif", depth=16), pixels(16, 8, 8))


# Writing


@pytest.mark.parametrize("shape", [(13, 9), (1, 1), (5, 7, 3), (1, 1, 3)])
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("depth", [9, 12, 16])
def test_what_is_written_is_read_again(tmp_path, suffix, shape, depth):
    image, path = np.resize(pixels(depth, 13, 9, 3), shape), tmp_path / f"a{suffix}"
    write_image(path, image, depth)
    again = silent(path, depth=depth)
    assert again.dtype == np.uint16
    np.testing.assert_array_equal(again, image)
    assert is_marked(path)


@pytest.mark.parametrize("shape", [(13, 9), (13, 9, 3)])
def test_other_programs_read_what_is_written(tmp_path, shape):
    image = pixels(12, *shape)
    for name in ("a.tif", "a.png"):
        write_image(tmp_path / name, image, 12)
    with tifffile.TiffFile(tmp_path / "a.tif") as file:
        np.testing.assert_array_equal(file.asarray(), image)
        tags = file.pages[0].tags
        assert np.ravel(tags["MaxSampleValue"].value).tolist() == [4095] * image[0, 0].size
        assert tags["Software"].value == "tersense"
    with Image.open(tmp_path / "a.png") as file:
        assert file.info["MaxSampleValue"] == "4095"
        shown = np.asarray(file)
        np.testing.assert_array_equal(shown, image if image.ndim == 2 else image >> 8)


@pytest.mark.parametrize("suffix", [".jpg", ".bmp", ".webp", ".gif"])
def test_formats_of_eight_bits_are_refused(tmp_path, refused, suffix):
    with refused("pixels of 12 bits need a file ending in one of .png"):
        write_image(tmp_path / f"a{suffix}", pixels(12, 4, 4), 12)
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_has_a_depth(tmp_path):
    with pytest.raises(TypeError, match="uint16 pixels must have a depth"):
        write_image(tmp_path / "a.png", pixels(12, 4, 4))
    with pytest.raises(TersenseError, match="depth must be at least 12"):
        write_image(tmp_path / "a.png", pixels(12, 4, 4), 10)
    write_image(tmp_path / "a.png", pixels(8, 4, 4), 8)
    with Image.open(tmp_path / "a.png") as file:
        assert file.mode == "L"


# Values


def test_luma_of_deep_color_is_that_of_shallow_color():
    image = pixels(8, 40, 50, 3)
    np.testing.assert_array_equal(to_gray(image), to_gray(image.astype(np.uint8)))
    levels = np.arange(0, 2**16, 7, dtype=np.uint16)[None, :, None].repeat(3, axis=2)
    np.testing.assert_array_equal(to_gray(levels), levels[..., 0])
    assert to_gray(np.full((1, 1, 3), 65535, np.uint16)).tolist() == [[65535]]


def test_read_gray_keeps_the_depth(tmp_path):
    image = pixels(12, 6, 5, 3)
    write_image(tmp_path / "a.tif", image, 12)
    np.testing.assert_array_equal(read_gray(tmp_path / "a.tif", 12), to_gray(image))


@pytest.mark.parametrize("depth", range(8, 17))
def test_pixels_are_rounded_and_clipped_to_the_depth(depth):
    white = 2**depth - 1
    estimate = np.array([-1e9, -0.6, 0.4, white - 0.4, white + 0.6, 1e9, np.inf])
    image = to_pixels(estimate, depth)
    assert image.dtype == (np.uint8 if depth == 8 else np.uint16)
    assert image.tolist() == [0, 0, 0, white, white, white, white]
    assert to_screen(image, depth).tolist() == [0, 0, 0, 255, 255, 255, 255]
