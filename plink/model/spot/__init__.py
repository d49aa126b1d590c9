"""Markets of transient machines: price and availability histories, and what a user says about them in market.toml."""
