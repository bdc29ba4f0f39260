"""`fedcompass watch`: a run's report, live in the browser while the run goes on."""

import sys
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["watch"]


def watch(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Runs' folders, or a folder of such folders; finished or going on."),
    ],
    host: Annotated[
        str,
        typer.Option(help="Address to listen at; beyond this machine the URL carries a token."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0: any that is free.")] = 8642,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Serve the report page of runs, updated as they go on; Ctrl-C ends it, the runs go on."""
    from fedcompass.report.live_server import LiveServer
    from fedcompass.report.run_files import find_runs

    with LiveServer(find_runs(runs), host, port) as server:
        print(f"watch: {server.url}  (Ctrl-C ends it)", flush=True)
        if server.token is not None:
            print(
                "anyone who has this address can see the runs; it is not encrypted", file=sys.stderr
            )
        if open_it:
            typer.launch(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            server.stopping.set()
