"""`slimscale train router`: fine-tune on logged decisions, judge, and write a ConfigMap's manifest."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml
from rich.console import Console
from rich.progress import track

from slimscale.act.policy_manifest import policy_config_map
from slimscale.exceptions import SlimError
from slimscale.routing.decision_records import DecisionRecord, decode_segment
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.serving.router.learned import SHIPPED_POLICY
from slimscale.serving.router.policy_file import read_folder
from slimscale.training.router.from_log import FineTuned, fine_tune, may_publish
from slimscale.training.router.train import TrainSettings, validation_cases
from slimscale.weights import read_weights

__all__ = ["read_log", "start_of", "train_router"]


def train_router(log: Path, *, out: Path, name: str, start: Path | None, seed: int) -> int:
    """Exit status: 0 written, 2 the gate says that the new policy is no better, and nothing is.

    Raises:
        SlimError: the log or the policy cannot be used; the message says why and what to do.
    """
    console = Console()
    weights = start_of(start)
    records, versions = read_log(log, console)
    if versions - {weights.version}:
        raise SlimError(
            f"the log is of policy {', '.join(sorted(versions))}, the start is {weights.version};"
            " give the folder of that policy with --start"
        )
    try:
        tuned = fine_tune(records, weights, rng=np.random.default_rng(seed))
    except ValueError as error:
        raise SlimError(str(error)) from error
    console.print(
        f"{tuned.decisions} decisions counted, of {len(records)}; J of a request"
        f" {tuned.mean_reward:.3f}; divergence {tuned.kl:.4f} nats a decision"
    )
    settings = TrainSettings(validation_traces=1)
    cases = track(list(validation_cases(settings)), "judging, simulated", console=console)
    verdict = may_publish(weights, tuned.weights, cases)
    console.print(f"gate: {verdict.reason}")
    if not verdict.publish:
        console.print("nothing is written: the policy in use stays the better one")
        return 2
    out.write_text(_manifest(name, tuned, weights, gain=verdict.gain, seed=seed), encoding="utf-8")
    console.print(
        f"{out}: `kubectl apply --server-side -f {out}`, then name it in the SlimInference:"
        f" routing.learned.policyConfigMap: {name}. Routers try it in shadow first."
    )
    return 0


def start_of(folder: Path | None) -> PolicyWeights:
    """The policy that made the log: of a folder, else the one that ships."""
    try:
        found = read_weights(SHIPPED_POLICY) if folder is None else read_folder(folder)
        if found is None:
            raise SlimError("this version ships no policy; give the folder of one with --start")
        return PolicyWeights.read(*found)
    except ValueError as error:
        raise SlimError(f"the policy to start from: {error}") from error


def read_log(folder: Path, console: Console) -> tuple[Sequence[DecisionRecord], set[str]]:
    """All decisions of the folder's segments, and the policies that they name."""
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise SlimError(
            f"{folder} has no *.safetensors; fetch some with `slimscale train fetch-log NAME --out"
            f" {folder}`"
        )
    records: list[DecisionRecord] = []
    versions = set()
    for path in track(paths, "reading the log", console=console):
        try:
            segment = decode_segment(path.read_bytes())
        except ValueError as error:
            raise SlimError(f"{path}: {error}") from error
        records += segment.records
        versions.add(segment.facts.get("policy", ""))
    return records, versions


def _manifest(name: str, tuned: FineTuned, start: PolicyWeights, *, gain: float, seed: int) -> str:
    data, card = tuned.weights.write(
        {
            "made_by": "slimscale train router --from-log",
            "started_from": start.version,
            "decisions": tuned.decisions,
            "kl_nats": tuned.kl,
            "gain_on_validation": gain,
            "seed": seed,
        }
    )
    manifest = policy_config_map(name, data=data, card=json.loads(json.dumps(card)))
    return yaml.safe_dump(manifest, sort_keys=False)
