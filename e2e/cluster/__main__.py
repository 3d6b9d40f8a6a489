"""`python -m e2e.cluster up | down | status | load IMAGE...`."""

import argparse
import sys
import time

from e2e import images
from e2e.cluster import kind
from e2e.cluster.host import HostLacks
from e2e.paths import CLUSTER, CONTEXT, KUBECONFIG
from e2e.progress import StepFailed


def main(arguments: list[str] | None = None) -> int:
    """Do what is asked; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", help="make the cluster, or find it as it should be")
    verbs.add_parser("down", help="delete it; the caches stay")
    verbs.add_parser("status", help="say what runs; exit status 1 when it is not usable")
    load = verbs.add_parser("load", help="copy local images into the nodes")
    load.add_argument("image", nargs="+")
    given = parser.parse_args(arguments)
    start = time.monotonic()
    try:
        match given.verb:
            case "up":
                kind.up()
                print(f"{CLUSTER} is up ({time.monotonic() - start:.0f} s)")
                print(f"export KUBECONFIG={KUBECONFIG}  # context {CONTEXT}")
            case "down":
                kind.down()
            case "load":
                images.load(given.image)
            case _:
                return _status()
    except (StepFailed, HostLacks) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    return 0


def _status() -> int:
    stamp = kind.current()
    if stamp is None:
        print(f"{CLUSTER}: not made (python -m e2e.cluster up)")
        return 1
    trouble = kind.problem(stamp)
    source = "built from source" if stamp.from_source else "published"
    print(f"{CLUSTER}: {trouble or 'up'}; {stamp.engine}, node image {source}; {KUBECONFIG}")
    return 1 if trouble else 0


if __name__ == "__main__":
    sys.exit(main())
