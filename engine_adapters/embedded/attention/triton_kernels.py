# mypy: disallow-untyped-decorators=false, allow-untyped-defs, allow-incomplete-defs
"""Triton kernels of paged attention: attend over part of the keys, then merge the parts.

Scalars are not specialized on, so that what a self-check compiled is what runs later. Triton compiles annotations,
too, and knows no others than its own.
"""

import triton
import triton.language as tl

_NOTHING = tl.constexpr(-1.0e30)  # a running maximum before any key; finite, so that no inf - inf occurs
_TINY = tl.constexpr(1.0e-30)


@triton.jit(
    do_not_specialize=["query_head", "query_row", "pool_slots", "scaling", "softcap", "window"],
    do_not_specialize_on_alignment=["query"],
)
def attend_parts(
    query,  # [heads, T, KEY_DIM] by the two strides below
    keys,  # [kv_heads, pool_slots, KEY_DIM]
    values,  # [kv_heads, pool_slots, VALUE_DIM]
    tables,  # page tables, one behind another
    items,  # [programs, 5]: table, first key position, the one behind the last, first entry, entries
    entries,  # [entries, 3]: row of the query, its position, part that takes the result
    outputs,  # [parts, heads, VALUE_DIM] float32
    totals,  # [parts, heads] float32: log of the sum of exponentials
    query_head,
    query_row,
    pool_slots,
    scaling,
    softcap,  # 0: none
    window,
    GROUP: tl.constexpr,  # noqa: N803 - Triton's convention for what is known when compiling
    KEY_DIM: tl.constexpr,  # noqa: N803
    VALUE_DIM: tl.constexpr,  # noqa: N803
    PAGE: tl.constexpr,  # noqa: N803 - tokens a block
    BLOCK_M: tl.constexpr,  # noqa: N803 - query rows times heads of a group, in one tile
    BLOCK_N: tl.constexpr,  # noqa: N803 - keys in one tile
    BLOCK_K: tl.constexpr,  # noqa: N803 - KEY_DIM padded
    BLOCK_V: tl.constexpr,  # noqa: N803 - VALUE_DIM padded
    DOT: tl.constexpr,  # noqa: N803 - what the two products' operands are
):
    """Program (item, key head): the item's rows, with all query heads of the group, over its keys."""
    item = items + tl.program_id(0) * 5
    kv_head = tl.program_id(1)
    heads = tl.num_programs(1) * GROUP
    table = tables + tl.load(item)
    begin = tl.load(item + 1)
    end = tl.load(item + 2)
    entry = tl.load(item + 3)
    count = tl.load(item + 4)

    packed = tl.arange(0, BLOCK_M)
    live = packed // GROUP < count
    mine = entries + (entry + packed // GROUP) * 3
    row = tl.load(mine, mask=live, other=0)
    position = tl.load(mine + 1, mask=live, other=-1)
    part = tl.load(mine + 2, mask=live, other=0)
    head = kv_head * GROUP + packed % GROUP

    of_key = tl.arange(0, BLOCK_K)
    of_value = tl.arange(0, BLOCK_V)
    at_query = head.to(tl.int64) * query_head + row.to(tl.int64) * query_row
    q = tl.load(
        query + at_query[:, None] + of_key[None, :],
        mask=live[:, None] & (of_key < KEY_DIM)[None, :],
        other=0.0,
    ).to(DOT)
    first_slot = kv_head.to(tl.int64) * pool_slots

    top = tl.full([BLOCK_M], _NOTHING, tl.float32)
    weight = tl.zeros([BLOCK_M], tl.float32)
    result = tl.zeros([BLOCK_M, BLOCK_V], tl.float32)
    for start in range(begin, end, BLOCK_N):
        at = start + tl.arange(0, BLOCK_N)
        inside = at < end
        page = tl.load(table + at // PAGE, mask=inside, other=0).to(tl.int64)
        slot = first_slot + page * PAGE + at % PAGE
        k = tl.load(
            keys + slot[None, :] * KEY_DIM + of_key[:, None],
            mask=inside[None, :] & (of_key < KEY_DIM)[:, None],
            other=0.0,
        )
        score = tl.dot(q, k.to(DOT), input_precision="ieee") * scaling
        if softcap > 0.0:
            score = softcap * (2.0 * tl.sigmoid(2.0 * score / softcap) - 1.0)  # softcap * tanh
        seen = inside[None, :] & (at[None, :] <= position[:, None])
        seen = seen & (at[None, :] > position[:, None] - window)
        score = tl.where(seen, score, float("-inf"))

        higher = tl.maximum(top, tl.max(score, 1))
        fade = tl.exp(top - higher)
        weights = tl.exp(score - higher[:, None])
        v = tl.load(
            values + slot[:, None] * VALUE_DIM + of_value[None, :],
            mask=inside[:, None] & (of_value < VALUE_DIM)[None, :],
            other=0.0,
        )
        weight = weight * fade + tl.sum(weights, 1)
        rounded = weights.to(values.dtype.element_ty).to(DOT)
        result = result * fade[:, None] + tl.dot(rounded, v.to(DOT), input_precision="ieee")
        top = higher

    weight = tl.maximum(weight, _TINY)  # a row that saw none of these keys: its part weighs nothing
    target = part.to(tl.int64) * heads + head
    tl.store(totals + target, top + tl.log(weight), mask=live)
    tl.store(
        outputs + target[:, None] * VALUE_DIM + of_value[None, :],
        result / weight[:, None],
        mask=live[:, None] & (of_value < VALUE_DIM)[None, :],
    )


@triton.jit
def merge_parts(
    outputs,  # [parts, heads, VALUE_DIM] float32
    totals,  # [parts, heads] float32
    merges,  # [programs, 3]: row, first part, parts
    sinks,  # [heads] float32; anything where SINKS is false
    target,  # [T, heads, VALUE_DIM]
    VALUE_DIM: tl.constexpr,  # noqa: N803
    BLOCK_V: tl.constexpr,  # noqa: N803
    SINKS: tl.constexpr,  # noqa: N803
):
    """Program (row, head): the whole from its parts, and the sink's share of the softmax."""
    merge = merges + tl.program_id(0) * 3
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    row = tl.load(merge).to(tl.int64)
    first = tl.load(merge + 1).to(tl.int64)
    behind = first + tl.load(merge + 2)
    of_value = tl.arange(0, BLOCK_V)
    whole = of_value < VALUE_DIM

    top = tl.full([], _NOTHING, tl.float32)
    weight = tl.full([], 0.0, tl.float32)
    if SINKS:
        top = tl.load(sinks + head)
        weight = tl.full([], 1.0, tl.float32)
    result = tl.zeros([BLOCK_V], tl.float32)
    for part in range(first, behind):
        source = part * heads + head
        total = tl.load(totals + source)
        higher = tl.maximum(top, total)
        fade = tl.exp(top - higher)
        share = tl.exp(total - higher)
        piece = tl.load(outputs + source * VALUE_DIM + of_value, mask=whole, other=0.0)
        result = result * fade + piece * share
        weight = weight * fade + share
        top = higher
    done = (result / weight).to(target.dtype.element_ty)
    tl.store(target + (row * heads + head) * VALUE_DIM + of_value, done, mask=whole)
