"""Histograms that cost little on the way of a request; families are made when they are scraped."""

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["Histogram", "ModelHistograms"]


class Histogram:
    """Counts by upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        names = [*(repr(bound) for bound in self.bounds), "+Inf"]
        found, running = [], 0
        for name, count in zip(names, self.counts, strict=True):
            running += count
            found.append((name, float(running)))
        return found


class ModelHistograms(Collector):
    """One histogram a model, under one name. Used from the event loop alone."""

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._text = text
        self._bounds = bounds
        self._of_model: dict[str, Histogram] = {}

    def of(self, model: str) -> Histogram:
        found = self._of_model.get(model)
        if found is None:
            found = self._of_model[model] = Histogram(self._bounds)
        return found

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=("model",))
        for model, histogram in self._of_model.items():
            family.add_metric((model,), histogram.buckets(), histogram.total)
        yield family
