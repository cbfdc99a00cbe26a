import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tersense.errors import TersenseError
from tersense.training.config import build_config, read_config, write_toml

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture
def empty(tmp_path):
    """A file without settings: all defaults."""
    path = tmp_path / "empty.toml"
    path.touch()
    return path


def changed(empty, *changes):
    return read_config(empty, list(changes))


# The files that come with the program


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.name)
def test_every_configuration_that_comes_along_is_valid(path):
    read_config(path)


def test_the_papers_configuration_holds_the_papers_numbers():
    config = read_config(CONFIGS / "paper.toml")
    sensing, train = config.sensing, config.train
    assert (sensing.window, sensing.stride) == (32, 32)
    assert (sensing.rate, sensing.density) == (0.25, 0.05)
    assert sensing.selection == "column"
    assert config.reconstructor == {"name": "mlp", "hidden": (2048, 2048), "eps": 1e-5}
    assert (config.data.crop, config.data.samples, config.data.fresh) == (32, 5_000_000, False)
    assert (train.epochs, train.batch, train.lr) == (50, 5000, 0.01)
    assert (train.lr_decay, train.lr_decay_epochs) == (0.6, 5)


def test_the_quick_configuration_needs_no_data_of_ones_own():
    config = read_config(CONFIGS / "quick.toml")
    assert config.data.train.startswith("package:")
    assert config.data.crop >= config.sensing.window


# Unknown names


@pytest.mark.parametrize(
    ("text", "unknown", "nearest"),
    [
        ("[sensin]\nwindow = 8", "sensin", "sensing"),
        ("[training]\nlr = 1", "training", "train"),
        ("[sensing]\nwindws = 8", "windws", "window"),
        ("[sensing]\nselect = 'row'", "select", "selection"),
        ("[train]\nepoch = 3", "epoch", "epochs"),
        ("[train]\nlr_decay_epoch = 3", "lr_decay_epoch", "lr_decay_epochs"),
        ("[data]\nsample = 3", "sample", "samples"),
        ("[reconstructor]\nhiden = [3]", "hiden", "hidden"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(tmp_path, refused, text, unknown, nearest):
    (tmp_path / "a.toml").write_text(text)
    with refused(f" {unknown};", f" {nearest}?"):
        read_config(tmp_path / "a.toml")


def test_a_name_near_to_none_is_refused_with_all_of_them(empty, refused):
    with refused("zzz", "window", "stride", "rate", "density", "selection"):
        changed(empty, "sensing.zzz=1")


def test_a_setting_outside_a_section_is_refused(tmp_path, refused):
    (tmp_path / "a.toml").write_text("sensing = 3")
    with refused("sensing"):
        read_config(tmp_path / "a.toml")


def test_an_unknown_reconstructor_is_refused_with_the_known_ones(empty, refused):
    with refused("zzz", "mlp"):
        changed(empty, "reconstructor.name=zzz")


# Types


@pytest.mark.parametrize(
    "change",
    [
        "sensing.window=8.5",
        "sensing.window=8.0",
        "train.epochs=true",
        "train.lr=false",
        "sensing.window=eight",
        "sensing.window=[8]",
        "sensing.rate=true",
        "sensing.rate=much",
        "sensing.selection=3",
        "data.samples=1e6",
        "data.fresh=1",
        "data.fresh=yes",
        "data.train=3",
        "data.train=[1, 2]",
        "train.lr='0.1'",
        "train.epochs=",
        "train.out=true",
        "reconstructor.name=3",
        "reconstructor.hidden=16",
        "reconstructor.hidden=[]",
        "reconstructor.hidden=[16, 1.5]",
        "reconstructor.hidden=['16']",
        "train.lr=2020-01-01",
    ],
)
def test_a_value_of_a_wrong_type_is_refused_by_name(empty, refused, change):
    with refused(change.partition("=")[0]):
        changed(empty, change)


def test_whole_numbers_pass_as_real_ones(empty):
    rate = changed(empty, "sensing.rate=1").sensing.rate
    assert rate == 1.0
    assert isinstance(rate, float)


# Ranges


@pytest.mark.parametrize(
    "change",
    [
        "sensing.window=0",
        "sensing.window=-8",
        "sensing.window=16",  # below the stride of 32
        "sensing.stride=0",
        "sensing.stride=33",
        "sensing.rate=0",
        "sensing.rate=-0.1",
        "sensing.rate=1.1",
        "sensing.rate=nan",
        "sensing.density=0",
        "sensing.density=1.5",
        "sensing.density=nan",
        "sensing.selection=diagonal",
        "data.crop=0",
        "data.samples=-1",
        "train.batch=1",
        "train.epochs=0",
        "train.seconds=-1",
        "train.seconds=nan",
        "train.lr=0",
        "train.lr=-0.1",
        "train.lr=nan",
        "train.lr=inf",
        "train.lr_decay=0",
        "train.lr_decay=inf",
        "train.lr_decay_epochs=0",
        "train.l2=-0.1",
        "train.l2=inf",
        "train.seed=-1",
        "train.device=tpu",
        "train.precision=float16",
        "train.validate_epochs=0",
        "train.checkpoint_epochs=0",
        "reconstructor.hidden=[0]",
        "reconstructor.hidden=[16, -3]",
    ],
)
def test_a_value_that_no_training_can_use_is_refused_by_name(empty, refused, change):
    with refused(change.partition(".")[0]):
        changed(empty, change)


def test_the_rate_is_the_one_that_whole_patterns_give(empty):
    config = changed(empty, "sensing.rate=0.1")
    assert config.sensing.rate == 102 / 1024  # m = ⌊102.4⌋


# Changes


def test_changes_are_numbers_booleans_lists_and_text(empty):
    config = changed(
        empty,
        "train.epochs=7",
        "train.lr=1e-3",
        "train.seed=1_000",
        "data.fresh=true",
        "reconstructor.hidden=[16, 8]",
        "sensing.selection=row",
        'train.device="cpu"',
    )
    assert (config.train.epochs, config.train.lr, config.train.seed) == (7, 0.001, 1000)
    assert config.data.fresh is True
    assert config.reconstructor["hidden"] == (16, 8)
    assert (config.sensing.selection, config.train.device) == ("row", "cpu")


@pytest.mark.parametrize(
    "path",
    ["photographs", "/data/set 1/a", "../up", "package:skimage/data", "C:\\data\\new", "a=b",
     "my#1", "Übung/ß", "it's"],
)  # fmt: skip
def test_paths_are_taken_as_text(empty, path):
    assert changed(empty, f"data.train={path}").data.train == path


def test_spaces_around_a_change_do_not_matter(empty):
    config = changed(empty, " train.epochs = 7 ", "data.train = photographs ")
    assert (config.train.epochs, config.data.train) == (7, "photographs")


def test_the_last_change_wins_over_earlier_ones_and_the_file(tmp_path):
    (tmp_path / "a.toml").write_text("[train]\nepochs = 3\nbatch = 30\n")
    config = changed(tmp_path / "a.toml", "train.epochs=4", "train.epochs=5")
    assert (config.train.epochs, config.train.batch) == (5, 30)


@pytest.mark.parametrize(
    "change", ["", "=", "epochs", "epochs=3", "train.epochs", ".epochs=3", "train.=3", "train=3"]
)
def test_a_malformed_change_is_refused(empty, refused, change):
    with refused():
        changed(empty, change)


def test_a_change_cannot_smuggle_in_another_setting(empty):
    try:
        config = changed(empty, "train.epochs=3\nbatch=7")
    except TersenseError:
        return
    assert config.train.batch == 5000


# Files


def test_an_empty_file_means_the_defaults(empty):
    assert read_config(empty) == build_config({})


@pytest.mark.parametrize(
    "content", [b"[train", b"epochs: 3", b"[a]\n[a]\n", b"{}", b"a = " + b"9" * 5000]
)
def test_what_is_no_toml_is_refused(tmp_path, refused, content):
    (tmp_path / "a.toml").write_bytes(content)
    with refused(tmp_path / "a.toml", "TOML"):
        read_config(tmp_path / "a.toml")


def test_what_is_no_text_is_refused(tmp_path, refused):
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe\x00")
    with refused(tmp_path / "a.toml", "not a text file"):
        read_config(tmp_path / "a.toml")


def test_a_missing_file_is_refused(tmp_path, refused):
    with refused(tmp_path / "a.toml"):
        read_config(tmp_path / "a.toml")


def test_a_folder_is_refused(tmp_path, refused):
    with refused(tmp_path):
        read_config(tmp_path)


# Writing


def test_all_settings_that_come_along_are_written_and_read_again(tmp_path):
    for path in CONFIGS.glob("*.toml"):
        config = read_config(path)
        (tmp_path / "a.toml").write_text(write_toml(config), encoding="utf-8")
        assert read_config(tmp_path / "a.toml") == config


def test_every_setting_is_written(tmp_path, empty):
    changes = [
        "sensing.window=8", "sensing.stride=4", "sensing.rate=0.5", "sensing.density=0.125",
        "sensing.selection=matrix", "data.train=a", "data.validation=b", "data.cache=c",
        "data.crop=40", "data.samples=0", "data.fresh=true", "data.augment=true", "train.out=d",
        "train.epochs=2", "train.seconds=1.5", "train.batch=4", "train.lr=1e-7",
        "train.lr_decay=0.1", "train.lr_decay_epochs=3", "train.l2=0.001", "train.seed=12",
        "train.device=cpu", "train.precision=bfloat16", "train.compile=true",
        "train.validate_epochs=9", "train.checkpoint_epochs=8", "reconstructor.hidden=[3]",
    ]  # fmt: skip
    config = changed(empty, *changes)
    (tmp_path / "a.toml").write_text(write_toml(config), encoding="utf-8")
    assert read_config(tmp_path / "a.toml") == config


@pytest.mark.parametrize("path", ["C:\\data\\new", 'the "best"', "Übung", "a # b", "[x]", "\\"])
def test_paths_are_written_so_that_they_are_read_again(tmp_path, path):
    config = build_config({"data": {"train": path}})
    (tmp_path / "a.toml").write_text(write_toml(config), encoding="utf-8")
    assert read_config(tmp_path / "a.toml").data.train == path


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_text_is_written_so_that_it_is_read_again(text):
    config = build_config({})
    written = write_toml(replace(config, data=replace(config.data, train=text)))
    assert tomllib.loads(written)["data"]["train"] == text


@given(st.integers(1, 64), st.floats(1e-4, 1))
def test_writing_does_not_change_the_rate(stride, rate):
    config = build_config({"sensing": {"window": 64, "stride": stride, "rate": rate}})
    assert build_config(tomllib.loads(write_toml(config))) == config
