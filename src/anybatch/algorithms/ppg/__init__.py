"""PPG and PPG-EWMA."""
