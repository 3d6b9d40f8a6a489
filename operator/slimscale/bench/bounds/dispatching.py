"""Priority rules and the graph encoder in a shop whose machines fail: mean flow time by probability."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from slimscale.routing.related.dispatch_rules import PriorityRule
from slimscale.simulate.related.shop import Dispatch, Shop, by_encoder, by_rule, run_shop, train

__all__ = ["PROBABILITIES", "TRAINED_AT", "shop_rows"]

PROBABILITIES = (0.0, 0.02, 0.05, 0.1)
TRAINED_AT = 0.05
TRAINING_SEEDS = tuple(range(101, 109))


def shop_rows(
    *, seeds: Sequence[int], jobs: int, steps: int, advance: Callable[[], None]
) -> list[dict[str, Any]]:
    """One row a rule; the encoder is trained on other seeds than it is judged on."""
    weights = train(
        Shop(shutdown_probability=TRAINED_AT),
        seeds=TRAINING_SEEDS,
        steps=steps,
        seed=1,
        advance=advance,
    )
    dispatchers: dict[str, Dispatch] = {rule.value: by_rule(rule) for rule in PriorityRule}
    dispatchers["graph encoder"] = by_encoder(weights)
    rows = []
    for name, dispatch in dispatchers.items():
        row: dict[str, Any] = {"rule": name}
        for probability in PROBABILITIES:
            shop = replace(Shop(), shutdown_probability=probability)
            row[f"p = {probability:g}"] = fmean(
                run_shop(shop, dispatch, jobs=jobs, seed=seed)["flow_seconds"] for seed in seeds
            )
        rows.append(row)
    return rows
