"""The use case compare: read, match, measure, judge. Returns values, never prints."""
