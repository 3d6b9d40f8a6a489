"""The compiled simulator and the one that runs the data plane's own code tell the same story."""

from pathlib import Path

import pytest
from rich.console import Console

from slimscale.bench.progress import TerminalProgress
from slimscale.bench.routing.fidelity import compare_simulators, write_fidelity


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_policies_rank_alike_and_latencies_of_sane_ones_are_close(tmp_path: Path) -> None:
    with TerminalProgress(Console(quiet=True)) as progress:
        found = compare_simulators(progress, quick=True)
    for row in found.loads:
        assert row.tau_value >= 0.7
        assert row.tau_latency >= 0.7
        for pair in row.pairs:
            if pair.policy.startswith(("ColdAware", "Fastest", "SED, slimmest")):
                assert pair.error < 0.12, (row.load, pair)
                assert pair.compiled_accuracy == pytest.approx(pair.reference_accuracy, abs=0.008)
    page, data = write_fidelity(found, tmp_path, command="this test")
    assert "ColdAwareSED" in page.read_text()
    assert data.exists()
