"""The goals that AutoThread is held to, each beside what was measured; missed ones are shown as such."""

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Goal", "goals_of"]

TOLERATED_REGRET = 0.05
SPEED_UP = 1.184
OVER_XGBOOST, OVER_REINFORCER = 1.7, 1.8
TIME_CUT = 0.838


@dataclass(frozen=True, slots=True)
class Goal:
    what: str
    goal: str
    measured: str
    met: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def goals_of(judged: dict[str, Any], steady: dict[str, Any] | None) -> list[Goal]:
    """From `judgement.judge` and `judgement.judge_steady`; what was not run is left out."""
    policy = judged["policy"]
    found = [
        *_speed_up(judged),
        *_floor(judged),
        *_drifting(judged, "xgboost-once", OVER_XGBOOST),
        *_drifting(judged, "thread-reinforcer", OVER_REINFORCER),
        *_time_cut(judged),
        *_regret(judged, policy),
        *_steps(judged, policy),
        *_probing(judged, policy),
    ]
    if steady is not None and policy in steady:
        worst = steady[policy]["worst"]
        found.append(
            Goal(
                "changes in an hour of steady, noisy load, after 10 minutes",
                "0",
                f"median {steady[policy]['median']:.0f}, most {worst}"
                f" ({steady[policy]['without_any']} of {steady[policy]['runs']} runs without any)",
                worst == 0,
            )
        )
    return found


def _speed_up(judged: dict[str, Any]) -> list[Goal]:
    speed_up = judged["set_speed_up"]
    if speed_up is None:
        return []
    names = ", ".join(judged["named_statics"])
    return [
        Goal(
            f"speed-up over {names}, geometric mean",
            f">= {SPEED_UP}",
            f"{speed_up['value']:.3f} ({speed_up['low']:.3f} to {speed_up['high']:.3f})",
            speed_up["value"] >= SPEED_UP,
        )
    ]


def _floor(judged: dict[str, Any]) -> list[Goal]:
    rows = [row for row in judged["scenarios"] if row["over_floor"] is not None]
    if not rows:
        return []
    below = [row["scenario"] for row in rows if row["over_floor"]["high"] < 1.0]
    named = f": {', '.join(below[:4])}" if below else ""
    return [
        Goal(
            "scenarios below floor-of-quota by more than noise",
            "0",
            f"{len(below)} of {len(rows)}{named}",
            not below,
        )
    ]


def _drifting(judged: dict[str, Any], base: str, goal: float) -> list[Goal]:
    return [
        Goal(
            f"average throughput over {base}'s where the ratio drifts",
            f">= {goal}",
            f"ratio of averages {row['ratio_of_averages']:.2f},"
            f" average of ratios {row['average_of_ratios']:.2f}",
            min(row["ratio_of_averages"], row["average_of_ratios"]) >= goal,
        )
        for row in judged["drifting"]
        if row["base"] == base
    ]


def _time_cut(judged: dict[str, Any]) -> list[Goal]:
    rows = [r for r in judged["against_statics"] if r["base"] in judged["named_statics"]]
    if not rows:
        return []
    best = max(rows, key=lambda row: row["time_cut"]["best"])
    cut = best["time_cut"]
    return [
        Goal(
            "time for the same work, best case of the named statics",
            f">= {TIME_CUT:.1%} less",
            f"{cut['best']:.1%} less ({best['base']}; median there {cut['median']:.1%},"
            f" 10 to 90 %: {cut['p10']:.1%} to {cut['p90']:.1%})",
            cut["best"] >= TIME_CUT,
        )
    ]


def _regret(judged: dict[str, Any], policy: str) -> list[Goal]:
    return [
        Goal(
            "regret against the best per phase, mean of scenarios",
            f"<= {TOLERATED_REGRET:.0%}",
            f"{row['regret']['mean']:.1%} (median {row['regret']['median']:.1%},"
            f" 90th percentile {row['regret']['p90']:.1%}, worst {row['regret']['worst']:.1%})",
            row["regret"]["mean"] <= TOLERATED_REGRET,
        )
        for row in judged["ranking"]
        if row["policy"] == policy
    ]


def _steps(judged: dict[str, Any], policy: str) -> list[Goal]:
    row = judged["recovery"].get(policy)
    if row is None or row["steps"] is None:
        return []
    return [
        Goal(
            "steps after a change of load until within 5 % of the best",
            "<= 5",
            f"{row['within_five_steps']:.1%} of {row['changes']} changes; median"
            f" {row['steps']['median']:.0f}, not reached in {1 - row['reached']:.1%}",
            row["within_five_steps"] >= 1.0,
        )
    ]


def _probing(judged: dict[str, Any], policy: str) -> list[Goal]:
    row = judged["probing"].get(policy)
    if row is None:
        return []
    return [
        Goal(
            "runs below 90 % of the last good throughput for more than a window by own probing",
            "0",
            f"{row['runs_longer_than_a_window']} of {row['runs']}; longest"
            f" {row['longest_seconds']:.0f} s",
            row["runs_longer_than_a_window"] == 0,
        )
    ]
