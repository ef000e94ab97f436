"""The figures kvgate is measured by, each against its peer in the same run."""
