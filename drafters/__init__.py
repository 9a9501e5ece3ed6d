"""The drafters that ship with Draft Arena, one file each."""
