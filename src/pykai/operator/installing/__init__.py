"""`kai install`, `kai upgrade` and `kai uninstall`: the chart without Helm."""
