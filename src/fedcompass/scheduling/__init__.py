"""Who trains how long, and when to merge: pure state machines."""
