"""Bytes on a link: the frame layout, its limits, and the scan that cuts a stream into runs."""
