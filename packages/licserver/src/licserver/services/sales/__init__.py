"""Sales: deliveries of shops are stored, and licenses become what should exist."""
