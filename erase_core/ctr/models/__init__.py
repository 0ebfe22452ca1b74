"""CTR models as block graphs, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import torch

from erase_core import BlockGraph
from erase_core.ctr.models.dcnv2 import Dcnv2Options, dcnv2_parallel, dcnv2_stacked
from erase_core.ctr.models.dlrm import DlrmOptions, dlrm
from erase_core.ctr.models.options import ModelOptions
from erase_core.ctr.models.proxy import ProxyOptions, proxy
from erase_core.ctr.models.ranking import RankingOptions, ranking
from erase_core.ctr.schema import CtrSchema

__all__ = ["MODELS", "Model", "ModelOptions", "build_model", "model_options"]


@dataclass(frozen=True)
class Model:
    """A model's builder and the options, with their defaults, that it takes."""

    build: Callable[[CtrSchema, Any], BlockGraph]
    options: type[ModelOptions]


MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "proxy": Model(proxy, ProxyOptions),
        "dlrm": Model(dlrm, DlrmOptions),
        "dcnv2-stacked": Model(dcnv2_stacked, Dcnv2Options),
        "dcnv2-parallel": Model(dcnv2_parallel, Dcnv2Options),
        "ranking": Model(ranking, RankingOptions),
    }
)
"""Every model by the name that configurations and recorded rows use."""


def model_options(name: str, **options: Any) -> ModelOptions:
    """Validate a model's options and fill in its defaults, without building it.

    Raises:
        ValueError: where there is no such model or option, or a value is out of range.
        TypeError: where a value is of the wrong type.
    """
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; choose one of {', '.join(MODELS)}")
    known = [field.name for field in fields(MODELS[name].options)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(
            f"model {name!r} has no option {', '.join(map(repr, unknown))}; its options are "
            f"{', '.join(known)}"
        )
    return MODELS[name].options(**options)


def build_model(
    name: str, schema: CtrSchema, *, seed: int | None = None, **options: Any
) -> BlockGraph:
    """Build a model for the rows of a schema, on the CPU, in float32.

    The graph reads the batch fields "ids" and, where the schema has dense fields, "dense"; its
    target is "label" and its predictions are logits `[B]`. Every objective is the binary cross
    entropy in nats. The initial parameters do not depend on the arm that trains them.

    Args:
        name: a key of `MODELS`.
        schema: fields and cardinalities.
        seed: draws the initial parameters and leaves torch's generator as it was. By default they
            come from torch's generator.
        options: see `ModelOptions` and the model's own page.

    Raises:
        ValueError: where there is no such model or option, a value is out of range, a cut names no
            block, or the schema does not suit the model.
        TypeError: where a value is of the wrong type.
    """
    if not isinstance(schema, CtrSchema):
        raise TypeError(f"`schema` is a {type(schema).__name__}; pass a CtrSchema")
    checked = model_options(name, **options)
    build = MODELS[name].build
    if seed is None:
        return build(schema, checked)
    with torch.random.fork_rng(devices=[]):
        # Not `torch.manual_seed`, which would seed the GPUs' generators for good.
        torch.default_generator.manual_seed(seed)
        return build(schema, checked)
