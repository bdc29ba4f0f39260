"""What server and sites say to each other, whatever engine carries it; and gRPC as an engine."""
