"""The compatibility rules: one ordered table, asked by every command that predicts or explains."""
