"""The pure half of compaction: how large, what to drop, where to cut, what the summariser is told."""
