"""What differs between two sides of an upgrade: statistics, differences and the policy that judges them; all pure."""
