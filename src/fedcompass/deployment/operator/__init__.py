"""What people type: make a federation's folders, check them, run and watch its processes."""
