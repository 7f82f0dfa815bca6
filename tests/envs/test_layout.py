"""The parts of an observation in one array, and back."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anybatch.envs.layout import ObsLayout
from anybatch.networks import packed

DTYPES = [np.dtype(np.uint8), np.dtype(np.float32), np.dtype(np.bool_)]


@st.composite
def layouts(draw: st.DrawFn) -> ObsLayout:
    """Any layout of at least two parts."""
    image = draw(st.none() | st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 7)))
    return ObsLayout(
        image_shape=image,
        image_dtype=draw(st.sampled_from(DTYPES)),
        vector_width=draw(st.integers(1 if image is None else 0, 5)),
        mask_width=draw(st.integers(1, 7)),
    )


def parts_of(layout: ObsLayout, count: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    image = None
    if layout.image_shape is not None:
        numbers = rng.integers(0, 256, (count, *layout.image_shape))
        image = (numbers % 2 == 1) if layout.image_dtype == np.bool_ else numbers.astype(layout.image_dtype)
    vector = rng.normal(0, 1e3, (count, layout.vector_width)).astype(np.float32)
    mask = rng.random((count, layout.mask_width)) < 0.5
    return {"image": image, "vector": vector if layout.vector_width else None, "mask": mask}


@given(layouts(), st.integers(1, 3), st.integers(0, 999))
def test_what_is_packed_is_unpacked_to_the_bit(layout: ObsLayout, count: int, seed: int):
    parts = parts_of(layout, count, seed)
    rows = layout.pack(**parts)
    assert rows.shape == (count, *layout.shape) and rows.dtype == layout.dtype and layout.is_packed
    obs = torch.from_numpy(rows)
    assert np.array_equal(~packed.forbidden_actions(layout, obs).numpy(), parts["mask"])
    assert np.array_equal(layout.mask_of(rows), parts["mask"])
    if parts["vector"] is not None:
        vector = packed.vector_of(layout, obs)
        assert vector.dtype == torch.float32 and vector.is_contiguous()
        assert np.array_equal(vector.numpy(), parts["vector"])
        assert np.array_equal(layout.vector_of(rows), parts["vector"])
    if parts["image"] is not None:
        for image in (packed.image_of(layout, obs).numpy(), layout.image_of(rows)):
            assert image.dtype == layout.image_dtype and np.array_equal(image, parts["image"])


@pytest.mark.parametrize(
    ("layout", "shape", "dtype", "kind"),
    [
        (ObsLayout.single((7,), "vector"), (7,), np.float32, "vector"),
        (ObsLayout.single((3, 5, 7), "image"), (3, 5, 7), np.uint8, "image"),
        (ObsLayout.single((3, 5, 7), "planes"), (3, 5, 7), np.bool_, "planes"),
        (ObsLayout(image_shape=(3, 5, 7), image_dtype=DTYPES[1]), (3, 5, 7), np.float32, "image"),
        (ObsLayout(vector_width=7, mask_width=5), (12,), np.float32, "vector"),
        (ObsLayout(image_shape=(3, 5, 7), mask_width=2), (107,), np.uint8, "image"),
        (ObsLayout(image_shape=(3, 5, 7), image_dtype=DTYPES[2], vector_width=1), (109,), np.uint8, "planes"),
        (
            ObsLayout(image_shape=(3, 5, 7), image_dtype=DTYPES[1], vector_width=1, mask_width=2),
            (108,),
            np.float32,
            "image",
        ),
    ],
)
def test_one_part_is_stored_as_it_is_and_several_in_one_row(
    layout: ObsLayout, shape: tuple[int, ...], dtype: type[np.generic], kind: str
):
    assert (layout.shape, layout.dtype, layout.kind) == (shape, dtype, kind)
    assert layout.is_packed == (len(shape) == 1 and layout.shape != (7,))
