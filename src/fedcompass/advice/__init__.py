"""Which strategy to use for given clients: from their schedules and from what was measured."""
