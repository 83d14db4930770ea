"""The Helm chart as data: what it installs for which values, once for `helm` and once for `kai install`."""
