"""`python -m fedcompass` is the `fedcompass` command."""

from fedcompass.cli import main

main()
