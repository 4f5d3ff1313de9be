"""A drop-in for nixl on kvferry: the import names nixl, nixl_cu12 and nixl_cu13 lead here."""

__version__ = "1.5.1"
"""The level of the API that is matched."""
