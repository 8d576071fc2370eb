"""The environments that come with hyperrl, one folder each."""
