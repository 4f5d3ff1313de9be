"""The name nixl_cu13 leads to kvferry."""

from kvferry_nixl._alias import install

install(__name__, globals())
del install
