"""What a client does, as generators that two runners drive: see `runners`."""
