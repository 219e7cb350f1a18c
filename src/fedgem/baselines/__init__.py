"""The methods that FedGEM is compared with, one file each; importing this lists them all."""

from importlib import import_module
from pkgutil import iter_modules

from fedgem.baselines.method import METHODS, Entry, Federation, Method, method

__all__ = ["METHODS", "Entry", "Federation", "Method", "method"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
