"""A Ray cluster of two nodes on this machine; prints its address, and ends with its input.

Run by itself, so that Ray's processes, threads and warnings stay out of the tests' process.
"""

import os
import sys
from tempfile import TemporaryDirectory
from typing import Any

os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_enable_metrics_collection="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
)


def main() -> None:
    from ray import cluster_utils

    node = {
        "num_cpus": 1,
        "num_gpus": 0,
        "object_store_memory": 100 * 1024 * 1024,
        "include_dashboard": False,
    }
    # A short path, as sockets' paths are, and of its own: Ray notes the newest cluster's address in
    # the folder that $RAY_TMPDIR leads to, and neither makes /tmp/ray nor should we write there.
    with TemporaryDirectory(prefix="fc-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        os.environ["RAY_TMPDIR"] = folder
        cluster: Any = cluster_utils.Cluster(initialize_head=True, head_node_args=node)
        try:
            cluster.add_node(**node)
            cluster.wait_for_nodes(timeout=300)
            print(cluster.address, flush=True)
            sys.stdin.read()
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()
