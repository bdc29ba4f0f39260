"""Every benchmark that a machine without an accelerator can run, one after the other."""

from benchmarks import aggregation, deployment, scheduling, secure_aggregation, simulation, training


def main() -> None:
    for module in (scheduling, aggregation, secure_aggregation, training, simulation, deployment):
        print(f"== {module.__name__.removeprefix('benchmarks.')}", flush=True)
        module.main()


if __name__ == "__main__":
    main()
