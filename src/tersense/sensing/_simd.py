"""Vector instructions that Numba has no words for: sum, transpose, prefetch.

They are *intrinsics*: Python that writes LLVM's portable vector code, for AVX-512, AVX2, SSE2 and
NEON alike.  Each returns its signature and the function that writes its code.

Numba keeps compiled functions by the date of their own file: after a change here, touch
`additions.py`, whose functions call these.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as numba_intrinsic

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hide from the type checker that Numba passes the first argument itself."""
    return numba_intrinsic(function)


def _data(context: Any, builder: Any, signature: Any, args: Any, k: int) -> Any:
    """Return a pointer to the first element of argument ``k``, an array."""
    return context.make_array(signature.args[k])(context, builder, args[k]).data


def _vector_at(builder: Any, data: Any, index: Any, lanes: int) -> Any:
    """Return ``&data[index]`` as a pointer to a vector of ``lanes`` elements."""
    vector = ir.VectorType(data.type.pointee, lanes)
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def _pick(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """Return these ``lanes`` of the two vectors laid end to end."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes))


def _summer(lanes: int) -> Callable[..., None]:
    """Make the intrinsic that takes one measurement of ``lanes`` neighboring windows.

    Bytes are added two at a time, as 16-bit words.  ``total`` sums the words and ``upper`` their
    upper bytes, so the lower bytes sum to ``total - 256 * upper``.  Words may wrap around on the
    way: what comes out of a chunk fits.
    """
    words = ir.VectorType(_I16, lanes // 2)
    eight = ir.Constant(words, [8] * (lanes // 2))
    in_turn = [k // 2 + k % 2 * (lanes // 2) for k in range(lanes)]  # low, high, low, high, ...

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target, planes, offsets, chunks = (
            _data(context, builder, signature, args, k) for k in (0, 2, 4, 5)
        )
        _, at, _, n, _, _, first, last = args
        place = _vector_at(builder, target, at, lanes)
        total, upper, sums = (
            cgutils.alloca_once(builder, kind)  # type: ignore[no-untyped-call]
            for kind in (words, words, place.type.pointee)
        )
        builder.store(ir.Constant(sums.type.pointee, None), sums)
        with cgutils.for_range_slice(builder, first, last, _I64(1)) as (c, _):
            starts = builder.gep(chunks, [builder.mul(c, _I64(3))])
            plus, minus, stop = (builder.load(builder.gep(starts, [_I64(k)])) for k in range(3))
            for variable in total, upper:
                builder.store(ir.Constant(words, None), variable)
            for begin, end, combine in (plus, minus, builder.add), (minus, stop, builder.sub):
                with cgutils.for_range_slice(builder, begin, end, _I64(1)) as (k, _):
                    offset = builder.sext(builder.load(builder.gep(offsets, [k])), _I64)
                    source = _vector_at(builder, planes, builder.add(n, offset), lanes)
                    pixels = builder.bitcast(builder.load(source, align=1), words)
                    builder.store(combine(builder.load(total), pixels), total)
                    pixels = builder.lshr(pixels, eight)
                    builder.store(combine(builder.load(upper), pixels), upper)
            high = builder.load(upper)
            low = builder.sub(builder.load(total), builder.shl(high, eight))
            chunk = _pick(builder, low, high, in_turn)
            if chunk.type != sums.type.pointee:  # int32 sums
                chunk = builder.sext(chunk, sums.type.pointee)
            builder.store(builder.add(builder.load(sums), chunk), sums)
        builder.store(builder.load(sums), place, align=1)
        return context.get_dummy_value()

    def sum_up(
        _: Any, target: Any, at: Any, planes: Any, n: Any, offsets: Any, chunks: Any, first: Any,
        last: Any,
    ) -> Any:  # fmt: skip
        """Sum ``planes[n + k + offset]`` over ``chunks[first:last]`` into ``target[at + k]``."""
        i64 = types.int64
        return types.void(target, i64, planes, i64, offsets, chunks, i64, i64), emit

    return intrinsic(sum_up)


sum_128, sum_64 = _summer(128), _summer(64)


@intrinsic
def transpose(_: Any, row: Any, x: Any, step: Any, planes: Any, at: Any, size: Any) -> Any:
    """Transpose 32 x 16 bytes: ``planes[at + c * size + k] = row[x + k * step + c]``."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row, planes = (_data(context, builder, signature, args, k) for k in (0, 3))
        _, x, step, _, at, size = args

        def load(k: int) -> Any:
            place = builder.add(x, builder.mul(step, _I64(k)))
            return builder.load(_vector_at(builder, row, place, 16), align=1)

        # Two squares of 16 x 16 bytes lie side by side in 16 vectors of 32.  To interleave the
        # first eight vectors with the last eight, four times over, transposes both.
        square = [_pick(builder, load(k), load(k + 16), list(range(32))) for k in range(16)]
        front = [k + side + other for side in (0, 16) for k in range(8) for other in (0, 32)]
        back = [k + 8 for k in front]
        for _ in range(4):
            pairs = list(zip(square[:8], square[8:], strict=True))
            square = [_pick(builder, a, b, half) for a, b in pairs for half in (front, back)]
        for c, column in enumerate(square):
            place = builder.add(at, builder.mul(size, _I64(c)))
            builder.store(column, _vector_at(builder, planes, place, 32), align=1)
        return context.get_dummy_value()

    return types.void(row, types.int64, types.int64, planes, types.int64, types.int64), emit


@intrinsic
def prefetch(_: Any, array: Any, index: Any) -> Any:
    """Ask for element ``index`` of the flattened array before it is needed."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.gep(_data(context, builder, signature, args, 0), [args[1]])
        place = builder.bitcast(place, _I8.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [place.type, _I32, _I32, _I32])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(fetch, [place, _I32(0), _I32(2), _I32(1)])  # to read, second-level cache, data
        return context.get_dummy_value()

    return types.void(array, types.int64), emit
