"""What has to happen once before or after an installation, an upgrade or a deletion: `kai hook NAME`."""
