"""The name nixl leads to kvferry."""

from kvferry_nixl._alias import install

install(__name__, globals())
del install
