"""How long a batch takes on one instance: t0 + t1 * rows, learned online from what was measured.

Recursive least squares with forgetting (Ljung, System Identification, 2nd ed., section 11.2), on
relative errors: noise grows with the time itself. Errors are clipped, so that one stall moves
little; when several in a row are clipped the same way the load has changed, and it learns anew.
"""

__all__ = ["BatchTimes"]

_FORGETTING = 0.98
_MOST_COVARIANCE = 10.0
"""Of the relative parameters: keeps forgetting from winding up what isn't excited."""
_CLIP = 0.5
_CLIPPED_IN_A_ROW = 6
_SPREAD_GAIN = 0.05


class BatchTimes:
    """The estimate of one width. Seconds; None until the first batch has been measured."""

    __slots__ = ("_base", "_clipped", "_p00", "_p01", "_p11", "_row", "_spread", "count")

    def __init__(self) -> None:
        self.count = 0
        self._base = 0.0
        self._row = 0.0
        self._spread = 0.1
        self._clipped = 0
        self._p00, self._p01, self._p11 = 0.0, 0.0, 0.0

    @property
    def base_seconds(self) -> float | None:
        return max(self._base, 0.0) if self.count else None

    @property
    def row_seconds(self) -> float | None:
        return max(self._row, 0.0) if self.count else None

    @property
    def spread(self) -> float:
        """Mean relative error of late predictions."""
        return self._spread

    def seconds(self, rows: int) -> float | None:
        """Expected seconds of a batch of `rows`."""
        if not self.count:
            return None
        return max(self._base, 0.0) + max(self._row, 0.0) * rows

    def safe_seconds(self, rows: int) -> float | None:
        """With room for twice the mean error: for promises."""
        expected = self.seconds(rows)
        return None if expected is None else expected * (1.0 + 2.0 * self._spread)

    def observe(self, rows: int, seconds: float) -> None:
        """A batch of `rows` has taken `seconds`. What can't be is left out."""
        if rows < 1 or not 0.0 < seconds < 86_400.0:
            return
        expected = self.seconds(rows)
        if expected is None or expected <= 0.0:
            # One point can't tell base from row; half and half is put right by the next ones.
            self._base, self._row = seconds / 2.0, seconds / 2.0 / rows
            self._doubt(rows, seconds)
            self.count += 1
            return
        self.count += 1
        error = seconds / expected - 1.0
        self._spread += _SPREAD_GAIN * (min(abs(error), 1.0) - self._spread)
        if abs(error) > _CLIP:
            sign = 1 if error > 0.0 else -1
            self._clipped = self._clipped + sign if self._clipped * sign >= 0 else sign
            if abs(self._clipped) >= _CLIPPED_IN_A_ROW:
                self._scale(rows, expected, seconds)
                return
            error = _CLIP * sign
        else:
            self._clipped = 0
        self._learn(rows, expected, error)

    def _learn(self, rows: int, expected: float, error: float) -> None:
        """One step on y/expected = (base + row * rows)/expected."""
        x0, x1 = 1.0 / expected, rows / expected
        h0, h1 = self._p00 * x0 + self._p01 * x1, self._p01 * x0 + self._p11 * x1
        scale = _FORGETTING + x0 * h0 + x1 * h1
        self._base += h0 / scale * error
        self._row += h1 / scale * error
        self._p00 = (self._p00 - h0 * h0 / scale) / _FORGETTING
        self._p01 = (self._p01 - h0 * h1 / scale) / _FORGETTING
        self._p11 = (self._p11 - h1 * h1 / scale) / _FORGETTING
        most = _MOST_COVARIANCE * expected * expected
        excess = max(self._p00 / most, self._p11 * rows * rows / most)
        if excess > 1.0:
            self._p00, self._p01, self._p11 = (
                self._p00 / excess, self._p01 / excess, self._p11 / excess
            )  # fmt: skip

    def _scale(self, rows: int, expected: float, seconds: float) -> None:
        """The machine has become faster or slower as a whole: keep the shape, learn anew."""
        self._base = max(self._base, 0.0) * seconds / expected
        self._row = max(self._row, 0.0) * seconds / expected
        self._clipped = 0
        self._doubt(rows, seconds)

    def _doubt(self, rows: int, seconds: float) -> None:
        """As uncertain as after one batch: each parameter could explain all of it."""
        self._p00, self._p01, self._p11 = seconds**2, 0.0, (seconds / rows) ** 2
