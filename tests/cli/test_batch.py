"""Many files at once: folders, bad files in between, names of results."""

import numpy as np
import pytest
from skimage import data

import tersense
from tersense.cli.batch import find_measurements, plan_tasks
from tersense.cli.program import main
from tersense.errors import TersenseError
from tersense.io.images import find_images, read_image, write_image
from tersense.models.zoo import read
from tersense.runtime.progress import ahead


@pytest.fixture
def album(tmp_path):
    folder = tmp_path / "album"
    (folder / "deeper").mkdir(parents=True)
    write_image(folder / "a.png", data.camera()[:40, :50])
    write_image(folder / "a.bmp", data.moon()[:40, :50])
    write_image(folder / "deeper/b.png", data.astronaut()[:33, :64])
    return folder


def test_a_folder_goes_there_and_back(album, tmp_path, capsys):
    assert main(["sense", str(album), "-o", str(tmp_path / "y")]) == 0
    assert main(["reconstruct", str(tmp_path / "y"), "-o", str(tmp_path / "again")]) == 0
    imager = tersense.load("large").at_rate(0.25)  # has the patterns of the default, and is larger
    image = read_image(album / "deeper/b.png")
    expected = imager.reconstruct(imager.sense(image))
    np.testing.assert_array_equal(read_image(tmp_path / "again/deeper/b.png"), expected)
    assert len(find_images(tmp_path / "again")) == 3


def test_a_bad_file_is_named_at_the_end_and_the_others_are_done(album, tmp_path, capsys):
    (album / "bad.png").write_text("no image")
    (album / "deeper/cut.png").write_bytes((album / "a.png").read_bytes()[:200])
    assert main(["sense", str(album), "-o", str(tmp_path / "y")]) == 1
    said = capsys.readouterr().err
    assert "2 of 5 files failed" in said
    assert str(album / "bad.png") in said
    assert str(album / "deeper/cut.png") in said
    assert len(find_measurements(tmp_path / "y")) == 3


def test_damaged_measurements_do_not_stop_the_others(album, tmp_path, capsys):
    main(["sense", str(album), "-o", str(tmp_path / "y")])
    first = find_measurements(tmp_path / "y")[0]
    first.write_bytes(first.read_bytes()[:-1])
    assert main(["reconstruct", str(tmp_path / "y"), "-o", str(tmp_path / "again")]) == 1
    assert str(first) in capsys.readouterr().err
    assert len(find_images(tmp_path / "again")) == 2


def test_several_files_go_into_a_folder(album, tmp_path, capsys):
    files = [str(album / "a.png"), str(album / "deeper/b.png")]
    assert main(["sense", *files, "-o", str(tmp_path / "y")]) == 0
    assert {p.name for p in find_measurements(tmp_path / "y")} == {"a.tsm", "b.tsm"}


def test_equal_names_do_not_overwrite_each_other(album, tmp_path):
    tasks = plan_tasks([album], tmp_path / "y", ".tsm", find_images)
    assert len({task.target for task in tasks}) == 3


def test_one_file_may_go_into_a_folder_that_exists(album, tmp_path):
    (tmp_path / "y").mkdir()
    [task] = plan_tasks([album / "a.png"], tmp_path / "y", ".tsm", find_images)
    assert task.target == tmp_path / "y/a.tsm"


def test_many_results_do_not_fit_into_a_file(album, tmp_path):
    (tmp_path / "y").write_text("a file")
    with pytest.raises(TersenseError, match="need a folder"):
        plan_tasks([album], tmp_path / "y", ".tsm", find_images)


def test_an_empty_folder_has_no_measurements(tmp_path):
    with pytest.raises(TersenseError, match="no measurement files"):
        find_measurements(tmp_path)


def test_readout_models_are_recorded_in_the_file(album, tmp_path, capsys):
    out = tmp_path / "y.tsm"
    options = ["--bits", "8", "--noise", "2.5", "--seed", "9"]
    assert main(["sense", str(album / "a.png"), "-o", str(out), "--plain", *options]) == 0
    header = read(out).header
    assert (header.readout.bits, header.readout.noise, header.readout.seed) == (8, 2.5, 9)
    # 2 × 2 windows of 256 measurements for 40 × 50 pixels, 8 bits each; steps and offsets of 16
    assert read(out).bits_per_pixel == 8.192
    said = capsys.readouterr().out
    assert f"{8 * out.stat().st_size / 2000:.4g} bits per pixel; 8 bits, steps of " in said
    assert "each pattern ranged to all of its y; noise of deviation 2.5, seed 9" in said


@pytest.mark.parametrize(("full_scale", "steps"), [("max", "101"), ("600", "5"), ("127.1", "2")])
def test_a_full_scale_that_is_said_is_one_step_for_all_patterns(
    album, tmp_path, capsys, full_scale, steps
):
    out = tmp_path / "y.tsm"
    line = ["sense", str(album / "a.png"), "-m", "paper-r25", "-o", str(out), "--bits", "8"]
    assert main([*line, "--plain", "--full-scale", full_scale]) == 0
    # 12,750 is the most that 50 pixels of 255 add up to; there are 127 codes on each side.
    assert f" bits per pixel; 8 bits, steps of {steps}\n" in capsys.readouterr().out
    assert read(out).bits_per_pixel == 4.096


@pytest.mark.parametrize("wrong", ["0", "-5", "most", "101%", "%", "nan", "inf", "1e99"])
def test_other_full_scales_are_refused_in_one_line(album, tmp_path, capsys, wrong):
    line = ["sense", str(album / "a.png"), "-o", str(tmp_path / "y.tsm")]
    line += ["-m", "paper-r25", "--full-scale", wrong]
    assert main([*line, "--bits", "8"]) == 2
    assert "--full-scale must be auto, max, a number" in capsys.readouterr().err
    assert main(line) == 2
    assert "say its --bits" in capsys.readouterr().err


def test_reading_ahead_keeps_the_order_and_stays_close(monkeypatch):
    read = []

    def work(number):
        read.append(number)
        return number

    results = ahead(work, range(100), depth=4)
    assert next(results) == 0
    assert max(read) <= 5
    assert list(results) == list(range(1, 100))


def test_results_that_would_collide_are_refused(tmp_path):
    for name in "xyz":
        (tmp_path / name).mkdir()
        write_image(tmp_path / name / "a.png", data.camera()[:9, :9])
    sources = [tmp_path / name / "a.png" for name in "xyz"]
    with pytest.raises(TersenseError, match="would both become"):
        plan_tasks(sources, tmp_path / "out", ".tsm", find_images)


def test_an_image_is_not_overwritten_by_its_own_measurements(album, capsys):
    before = (album / "a.png").read_bytes()
    assert main(["sense", str(album / "a.png"), "-o", str(album / "a.png")]) == 2
    assert (album / "a.png").read_bytes() == before


def test_a_name_without_an_ending_is_a_folder(album, tmp_path):
    [task] = plan_tasks([album / "a.png"], tmp_path / "new", ".tsm", find_images)
    assert task.target == tmp_path / "new/a.tsm"


def test_many_results_do_not_go_into_a_folder_named_like_a_file(album, tmp_path):
    with pytest.raises(TersenseError, match="name a folder"):
        plan_tasks([album], tmp_path / "all.tsm", ".tsm", find_images)
