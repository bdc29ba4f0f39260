"""What a client does when it is told to train."""
