"""What kvgate is compared with."""
