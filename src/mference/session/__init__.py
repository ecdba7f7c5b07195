"""One generation: its settings, the sampling policy, the loop, and what it returns."""
