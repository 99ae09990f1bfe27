"""What every feature stands on: it imports none of them."""
