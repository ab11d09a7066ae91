"""What several copies cost, and how long appends stand still when a server is lost."""
