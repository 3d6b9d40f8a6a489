from slimscale.handlers.main import run

run()
