"""The `slimscale` command: advise, explain, generate. Also a kubectl plugin, `kubectl slimscale`."""
