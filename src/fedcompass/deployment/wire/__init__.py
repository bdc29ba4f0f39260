"""The wire between sites and server: gRPC with a certificate per site, durable at both ends."""
