"""MATLAB files: what scipy writes is read as scipy reads it."""

import io
import tracemalloc
import zlib

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from tersense.io.matlab import list_matrices

NUMBERS = st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "?"])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("matlab") / "a.mat"


@given(
    array=NUMBERS.flatmap(lambda kind: arrays(kind, array_shapes(min_dims=2, max_dims=4))),
    packed=st.booleans(),
    name=st.from_regex("[a-z][a-z0-9_]{0,30}", fullmatch=True),
)
def test_matrices_are_those_of_scipy(path, array, packed, name):
    content = {"text": "no numbers", name: array, "cells": np.array([{}], object)}
    scipy.io.savemat(path, content, do_compression=packed)
    (found,) = list_matrices(path)
    assert (found.name, found.shape) == (name, array.shape)
    np.testing.assert_array_equal(found.read(), scipy.io.loadmat(path)[name])


@given(
    array=arrays(
        "f8", array_shapes(min_dims=2, max_dims=2), elements=st.sampled_from([0, 0, 1, -1])
    ),
    packed=st.booleans(),
)
def test_sparse_matrices_are_spread_out(path, array, packed):
    scipy.io.savemat(path, {"a": scipy.sparse.csc_matrix(array)}, do_compression=packed)
    np.testing.assert_array_equal(list_matrices(path)[0].read(), array)


def test_a_packed_matrix_cannot_unpack_to_more_than_its_shape(path):
    scipy.io.savemat(path, {"a": np.ones((4, 4))}, do_compression=True)
    content = path.read_bytes()
    inside = zlib.decompress(content[136:])
    bomb = zlib.compress(inside + bytes(2**27))
    path.write_bytes(content[:128] + (15).to_bytes(4, "little") + len(bomb).to_bytes(4, "little"))
    with path.open("ab") as file:
        file.write(bomb)
    tracemalloc.start()
    (found,) = list_matrices(path)
    with pytest.raises(ValueError, match="no numbers"):
        found.read()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_version_4_and_7_3_are_refused_with_advice(path, refused):
    scipy.io.savemat(path, {"a": np.ones((4, 4))}, format="4")
    with refused("-v7"):
        list_matrices(path)
    memory = io.BytesIO()
    scipy.io.savemat(memory, {"a": np.ones((4, 4))})
    content = bytearray(memory.getvalue())
    content[124:126] = b"\x00\x02"
    path.write_bytes(content)
    with refused("7.3", "-v7"):
        list_matrices(path)
