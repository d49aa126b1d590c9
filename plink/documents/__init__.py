"""What plink's JSON documents hold: one module a kind, checked on reading and published as a JSON Schema."""
