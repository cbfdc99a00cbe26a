import os

import numpy as np
import pytest

from tersense.errors import TersenseError
from tersense.io.files import make_folder, read_npy, written_whole


def test_a_successful_block_makes_the_file(tmp_path):
    target = tmp_path / "result.txt"
    with written_whole(target) as partial:
        partial.write_text("all of it")
    assert target.read_text() == "all of it"
    assert list(tmp_path.iterdir()) == [target]


def test_a_successful_block_replaces_the_old_file(tmp_path):
    target = tmp_path / "result.txt"
    target.write_text("old and longer than the new one")
    with written_whole(target) as partial:
        partial.write_text("new")
    assert target.read_text() == "new"


def test_the_target_does_not_change_before_the_block_ends(tmp_path):
    target = tmp_path / "result.txt"
    target.write_text("old")
    with written_whole(target) as partial:
        partial.write_text("new")
        assert target.read_text() == "old"


def test_the_temporary_file_has_the_targets_name_and_lies_beside_it(tmp_path):
    with written_whole(tmp_path / "image.png") as partial:
        assert partial.name == "image.png"
        assert partial.parent.parent == tmp_path


def test_a_path_may_be_given_as_text(tmp_path):
    with written_whole(str(tmp_path / "result.txt")) as partial:
        partial.write_text("text")
    assert (tmp_path / "result.txt").read_text() == "text"


def test_the_result_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "ordinary").touch()
    with written_whole(tmp_path / "result") as partial:
        partial.touch()
    ordinary, result = ((tmp_path / name).stat().st_mode for name in ("ordinary", "result"))
    assert result == ordinary


@pytest.mark.parametrize("error", [RuntimeError, ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path, error):
    target = tmp_path / "result.txt"
    target.write_text("old")

    def write():
        with written_whole(target) as partial:
            partial.write_text("half of the n")
            raise error

    with pytest.raises(error):
        write()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_an_exception_leaves_no_new_file(tmp_path):
    def write():
        with written_whole(tmp_path / "result.txt") as partial:
            partial.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_clear_error_and_leaves_the_old_file(tmp_path, refused):
    target = tmp_path / "result.txt"
    target.write_text("old")
    with refused(target, "No space left"), written_whole(target) as partial:
        partial.write_text("half")
        raise OSError(28, "No space left on device")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_missing_folder_is_refused_before_the_block_runs(tmp_path, refused):
    target = tmp_path / "missing" / "result.txt"
    with refused(target), written_whole(target):
        pytest.fail("work was done for a file that cannot be written")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path, refused):
    (tmp_path / "file").touch()
    target = tmp_path / "file" / "result.txt"
    with refused(target), written_whole(target):
        pytest.fail("work was done for a file that cannot be written")


def test_a_folder_as_target_is_refused_and_kept(tmp_path, refused):
    (tmp_path / "folder").mkdir()
    with refused(tmp_path / "folder", "folder"), written_whole(tmp_path / "folder"):
        pytest.fail("work was done for a file that cannot be written")
    assert (tmp_path / "folder").is_dir()
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_what_a_file_says_cannot_break_the_line_or_command_the_terminal():
    message = str(TersenseError("its name is a\nb\x1b[31m\u2028c é×"))
    assert len(message.splitlines()) == 1
    assert message.isprintable()
    assert "é×" in message


def test_a_folder_that_cannot_be_written_is_refused(refused):
    # Not one made so by chmod: permissions do not stop root.
    with refused("/proc is not writable"), written_whole("/proc/result.txt"):
        pytest.fail("work was done for a file that cannot be written")


@pytest.mark.parametrize("name", ["n" * 300 + ".txt", "n." + "x" * 300])
def test_a_name_too_long_for_the_file_system_is_a_clear_error(tmp_path, refused, name):
    with refused("cannot write"), written_whole(tmp_path / name) as partial:
        partial.write_text("anything")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_device_or_pipe_is_not_replaced_by_a_file(tmp_path):
    # -o /dev/null, run by root, must not turn the device into a file.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(TersenseError), written_whole(pipe) as partial:
        partial.write_text("anything")
    assert pipe.is_fifo()


def test_make_folder_makes_parents_and_accepts_what_is_there(tmp_path):
    assert make_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert make_folder(tmp_path / "a" / "b").is_dir()


def test_make_folder_refuses_a_file_in_its_place(tmp_path, refused):
    (tmp_path / "file").touch()
    with refused(tmp_path / "file"):
        make_folder(tmp_path / "file")
    with refused(tmp_path / "file"):
        make_folder(tmp_path / "file" / "below")


@pytest.mark.filterwarnings("error")
def test_arrays_that_python_2_wrote_are_read_without_a_word(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content.replace(b"(2, 3), } ", b"(2L, 3), }"))
    assert read_npy(tmp_path / "a.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
