"""What a served request is worth: the objective that policies are compared by."""

from dataclasses import dataclass

__all__ = ["Objective"]


@dataclass(frozen=True, slots=True)
class Objective:
    """J = accuracy * (acc - acc_0) - latency * min(lat/SLO, latency_cap) - energy * E - miss * [late].

    acc_0 is the narrowest width's accuracy, lat/SLO the latency over the request's SLO, E the dynamic
    energy in joules, [late] 1 where lat > SLO or no answer came (science brief 2.3).
    """

    accuracy: float = 12.0
    latency: float = 1.0
    energy: float = 0.3
    miss: float = 1.0
    latency_cap: float = 2.0

    def value(
        self, *, accuracy_gain: float, latency_ratio: float, energy_joules: float, missed: bool
    ) -> float:
        """J of one request. `accuracy_gain` is over the narrowest width, 0 where nothing was answered."""
        return (
            self.accuracy * accuracy_gain
            - self.latency * min(latency_ratio, self.latency_cap)
            - self.energy * energy_joules
            - self.miss * missed
        )
